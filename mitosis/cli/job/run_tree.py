"""The steps of a run as a tree of text lines, with counts, rates and times.

Pure: a view of the run, the rates of its steps and the time go in, lines come out.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice

from mitosis.cli.follow.display import short_span
from mitosis.cli.rendering import GAP, one_line, span_text
from mitosis.contracts.lifecycle import STEP, StepState
from mitosis.contracts.runs import RunInfo, RunView, StepInfo

BAR_CELLS = 20
RATE_WINDOW = timedelta(seconds=30)
MARKS: Mapping[StepState, str] = {
    StepState.WAITING: "·",
    StepState.RUNNING: "▶",
    StepState.SUCCEEDED: "✓",
    StepState.FAILED: "✗",
    StepState.SKIPPED: "-",
    StepState.CANCELLED: "!",
}
SHOWN_FIRST: Mapping[StepState, int] = {
    StepState.RUNNING: 0,
    StepState.FAILED: 0,
    StepState.WAITING: 1,
}
"""Where there is no room for all steps; the others come last."""


class Rates:
    """How many tasks of each array end per second, over the last 30 seconds of what was seen."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[datetime, int]]] = {}

    def add(self, run: RunView, now: datetime) -> None:
        """Record the counts of the running arrays; forget the steps that have ended."""
        running = {one.name: one for one in run.steps if _has_progress(one)}
        self._seen = {name: seen for name, seen in self._seen.items() if name in running}
        for name, step in running.items():
            seen = self._seen.setdefault(name, deque())
            seen.append((now, _ended_tasks(step)))
            # the sample before the window is kept: without it a pause would hide the rate
            while len(seen) > 2 and seen[1][0] <= now - RATE_WINDOW:
                seen.popleft()

    def of(self, step: StepInfo, now: datetime) -> float | None:
        """Return the tasks per second of a running step; None while it is not known."""
        seen = self._seen.get(step.name)
        if not seen:
            return None
        since, before = seen[0]
        seconds = (now - since).total_seconds()
        return (_ended_tasks(step) - before) / seconds if seconds >= 1 else None


def headline(run: RunInfo, now: datetime) -> str:
    """Return the first line: ``pipeline version 3 (nightly)  running 12s  2 of 5 steps  3 tasks failed``."""
    parts = [
        job_text(run),
        f"{run.state} {elapsed(run.started_at, run.ended_at, now)}".rstrip(),
        f"{run.steps_ended} of {run.steps_total} steps",
        f"{run.tasks_failed} {'task' if run.tasks_failed == 1 else 'tasks'} failed"
        if run.tasks_failed
        else "",
        stop_text(run),
    ]
    return GAP.join(one_line(part) for part in parts if part)


def job_text(run: RunInfo) -> str:
    """Return the job, its version and the name of the run, as in ``pipeline version 3 (nightly)``."""
    version = "" if run.version is None else f" version {run.version}"
    return f"{run.job_name}{version}" + (f" ({run.name})" if run.name else "")


def stop_text(run: RunInfo) -> str:
    """Return why the rest is being cancelled, or the reason of the end."""
    if run.stopped_by is None or run.ended_at is not None:
        return run.reason or ""
    return f"stopping ({run.stopped_by})" + (f": {run.reason}" if run.reason else "")


def tree_lines(run: RunView, rates: Rates, now: datetime, room: int | None = None) -> list[str]:
    """Return one line for each step, each below the last of the steps that it comes after.

    ``room``: the most lines. If there are more steps, running and failed ones are shown first, and the last
    line counts the others.
    """
    steps = {one.name: one for one in run.steps}
    order = _placed(run.steps)
    heads = [f"{indent}{MARKS[steps[name].state]} {name}" for name, indent in order]
    width = max(map(len, heads), default=0)
    lines = [
        f"{head:<{width}}{GAP}{step_text(steps[name], steps, rates, now)}"
        for head, (name, _) in zip(heads, order, strict=True)
    ]
    if room is None or len(lines) <= room:
        return lines
    states = [steps[name].state for name, _ in order]
    shown = _most_important(states, max(0, room - 1))
    return [*(lines[at] for at in shown), _left_out(states, shown)]


def step_text(step: StepInfo, steps: Mapping[str, StepInfo], rates: Rates, now: datetime) -> str:
    """Return what is known about a step: its state, counts, rate, times and reason."""
    match step.state:
        case StepState.WAITING:
            return _waiting_text(step, steps)
        case StepState.RUNNING:
            return _running_text(step, rates, now)
    parts = [
        f"{step.state} {elapsed(step.started_at, step.ended_at, now)}".rstrip(),
        _counts(step) if step.is_array else "",
        _taken_text(step),
    ]
    text = GAP.join(part for part in parts if part)
    return f"{text}: {one_line(step.reason)}" if step.reason else text


def _taken_text(step: StepInfo) -> str:
    if step.taken:
        return f"{step.taken} taken over"
    return "taken over" if step.taken_from else ""


def bar(step: StepInfo, cells: int = BAR_CELLS) -> str:
    """Return succeeded, failed and other tasks as cells; a failed task has at least one."""
    total = max(1, step.total or step.created)
    ended = min(cells, cells * _ended_tasks(step) // total)
    lost = step.failed + step.cancelled
    bad = min(cells, max(1, cells * lost // total)) if lost else 0
    good = max(0, ended - bad)
    return "█" * good + "✗" * bad + "░" * (cells - good - bad)


def elapsed(start: datetime | None, end: datetime | None, now: datetime) -> str:
    """Return the time from the start to the end, or until now; empty before the start."""
    if start is None:
        return ""
    if end is not None:
        return span_text(end - start)
    return short_span(max(0, round((now - start).total_seconds())))


def _waiting_text(step: StepInfo, steps: Mapping[str, StepInfo]) -> str:
    before = [
        name if outcome == "success" else f"{name}: {outcome}"
        for name, outcome in step.after.items()
        if name in steps and steps[name].state not in STEP.terminal
    ]
    return f"waits for {', '.join(before)}" if before else "waiting"


def _running_text(step: StepInfo, rates: Rates, now: datetime) -> str:
    parts = [f"running {elapsed(step.started_at, None, now)}".rstrip()]
    if step.is_array:
        parts += [bar(step), _counts(step)]
        if rate := rates.of(step, now):
            parts.append(f"{rate:.3g}/s")
            parts.append(_left_text(step, rate))
    if step.stopped_by is not None:
        parts.append(f"stopping ({step.stopped_by})")
    return GAP.join(part for part in parts if part)


def _left_text(step: StepInfo, rate: float) -> str:
    left = (step.total or 0) - _ended_tasks(step)
    return f"done in {short_span(round(left / rate))}" if left > 0 else ""


def _counts(step: StepInfo) -> str:
    """Return the tasks that succeeded of all, and the others: ``190 of 200, 3 failed``."""
    total = step.created if step.total is None else step.total
    parts = [f"{step.succeeded} of {total}"]
    parts += [f"{step.failed} failed"] if step.failed else []
    parts += [f"{step.cancelled} cancelled"] if step.cancelled else []
    return ", ".join(parts)


def _ended_tasks(step: StepInfo) -> int:
    return step.succeeded + step.failed + step.cancelled


def _has_progress(step: StepInfo) -> bool:
    return step.is_array and step.state is StepState.RUNNING


def _placed(steps: Sequence[StepInfo]) -> list[tuple[str, str]]:
    """Return the steps in the order of the tree, each with its indentation."""
    layer_of = {one.name: one.layer for one in steps}
    below: dict[str | None, list[str]] = {}
    for one in steps:
        known = [name for name in one.after if name in layer_of]
        parent = max(known, key=lambda name: (layer_of[name], name), default=None)
        below.setdefault(parent, []).append(one.name)
    placed: list[tuple[str, str]] = []
    waiting = [(name, "", "") for name in reversed(below.get(None, []))]
    while waiting:  # a chain of a thousand steps needs no deep stack
        name, own, inner = waiting.pop()
        placed.append((name, own))
        children = below.get(name, [])
        waiting += [
            (child, f"{inner}{'└─ ' if at == 0 else '├─ '}", inner + ("   " if at == 0 else "│  "))
            for at, child in enumerate(reversed(children))
        ]
    return placed


def _most_important(states: Sequence[StepState], room: int) -> list[int]:
    """Return the places of the steps to show, in their order."""
    by_weight = sorted(range(len(states)), key=lambda at: (SHOWN_FIRST.get(states[at], 2), at))
    return sorted(islice(by_weight, room))


def _left_out(states: Sequence[StepState], shown: Sequence[int]) -> str:
    left = [states[at] for at in sorted(set(range(len(states))) - set(shown))]
    counts = [f"{left.count(state)} {state}" for state in StepState if state in left]
    return f"… {len(left)} more steps: {', '.join(counts)}"
