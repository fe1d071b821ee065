"""The figures of several policies beside each other, as rows of text."""

from collections.abc import Callable, Mapping, Sequence

from mitosis.scheduling.simulation.result import Result

Figures = Sequence[tuple[str, Callable[[Result], str]]]

FIGURES: Figures = (
    ("host time with tasks", lambda r: f"{r.worked_percent:.1f} %"),
    ("hours of work for each setup", lambda r: f"{r.hours_per_setup:.1f}"),
    ("setups per host and day", lambda r: f"{r.setups_per_host_day:.1f}"),
    (
        "setup and teardown",
        lambda r: f"{r.setup_hours + r.teardown_hours:,.0f} h ({r.switch_percent:.1f} %)",
    ),
    ("drain", lambda r: f"{r.drain_hours:,.0f} h ({r.drain_percent:.1f} %)"),
    (
        "hosts idle while work waited",
        lambda r: f"{r.idle_hours_while_waiting:,.0f} h ({r.idle_percent_while_waiting:.1f} %)",
    ),
    ("… free or past the idle threshold", lambda r: f"{r.past_threshold_percent:.2f} %"),
    ("hosts moved when idle", lambda r: f"{r.moves_idle:,.0f}"),
    ("hosts moved from work", lambda r: f"{r.moves_busy:,.0f}"),
    ("fairness between user groups (Jain)", lambda r: f"{r.jain:.2f}"),
    ("creation to end, median", lambda r: f"{r.turnaround_hours:.1f} h"),
    ("longest time without any host", lambda r: f"{r.longest_hostless_hours:.1f} h"),
    ("task groups ended", lambda r: f"{r.ended_groups:,.0f}"),
)


def rows_of(results: Mapping[str, Result]) -> Sequence[Sequence[str]]:
    """Return one row for each figure: its name, then its value under each policy."""
    rows = [[name, *(text(result) for result in results.values())] for name, text in FIGURES]
    priorities = sorted({w.priority for result in results.values() for w in result.waits})
    for priority in reversed(priorities):
        name = f"wait for the first host, priority {priority}: p50 / p95"
        rows.append([name, *(_wait(result, priority) for result in results.values())])
    return rows


def markdown(results: Mapping[str, Result]) -> str:
    """Return the rows as a table in Markdown."""
    head = ["", *results]
    lines = [head, ["---"] * len(head), *rows_of(results)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _wait(result: Result, priority: int) -> str:
    for wait in result.waits:
        if wait.priority == priority:
            return f"{wait.p50_minutes:.0f} / {wait.p95_minutes:.0f} min"
    return ""
