"""Tables and details of runs of jobs. Pure functions of the API's answers."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mitosis.cli.exit import ExitStatus
from mitosis.cli.job.run_tree import Rates, elapsed, headline, job_text, stop_text, tree_lines
from mitosis.cli.rendering import Item, Table, elapsed_text, one_line, time_text
from mitosis.contracts.lifecycle import RunState, StepState

if TYPE_CHECKING:
    from mitosis.contracts.runs import RunInfo, RunView, StepTask

OF_STATE: Mapping[RunState, ExitStatus] = {
    RunState.SUCCESS: ExitStatus.OK,
    RunState.FAILED: ExitStatus.TASKS_FAILED,
    RunState.CANCELLED: ExitStatus.CANCELLED,
}
"""Exit status of the commands that wait for the end of a run, by its state."""
FAILED_TASKS_SHOWN = 5
"""Of each step that has failed, at the end of a watch."""

MOST_OF_A_RESULT = 200
"""Characters of a result in a table; --json prints all of it."""


def run_item(run: "RunView") -> Item:
    """Return the fields of a run that have a value, the most important ones first."""
    fields = [
        ("run", str(run.run_id)),
        ("job", f"{run.group_name}/{job_text(run)}"),
        ("state", str(run.state)),
        ("reason", stop_text(run)),
        ("steps", f"{run.steps_ended} of {run.steps_total} ended"),
        ("tasks", counts_text(run)),
        ("parameters", "\n".join(_parameter(*one) for one in run.parameters.items())),
        ("labels", ", ".join(run.labels)),
        ("rerun of", str(run.rerun_of or "")),
        ("schedule", run.schedule or ""),
        ("nominal time", time_text(run.nominal_time)),
        ("started by", run.created_by),
        ("created", time_text(run.created_at)),
        ("started", time_text(run.started_at)),
        ("deadline", time_text(run.deadline)),
        ("ended", time_text(run.ended_at)),
    ]
    shown = [(label, text) for label, text in fields if text]
    return Item(run.model_dump(mode="json"), shown, str(run.run_id))


def counts_text(run: "RunInfo") -> str:
    """Return counts as in ``97 of 100 ended (95 succeeded, 2 failed)``."""
    parts = [
        f"{count} {word}"
        for count, word in (
            (run.tasks_succeeded, "succeeded"),
            (run.tasks_failed, "failed"),
            (run.tasks_cancelled, "cancelled"),
        )
        if count
    ]
    text = f"{run.tasks_created - run.tasks_open} of {run.tasks_created} ended"
    return text + (f" ({', '.join(parts)})" if parts else "")


def runs_table(runs: "Sequence[RunInfo]", now: datetime) -> Table:
    return Table(
        data=[one.model_dump(mode="json") for one in runs],
        columns=(
            "run",
            "job",
            "state",
            "steps",
            "tasks",
            "failed",
            "created",
            "took",
            "started by",
        ),
        rows=[
            (
                str(one.run_id),
                f"{one.group_name}/{job_text(one)}",
                str(one.state),
                f"{one.steps_ended}/{one.steps_total}",
                f"{one.tasks_created - one.tasks_open}/{one.tasks_created}",
                str(one.tasks_failed),
                time_text(one.created_at),
                elapsed(one.started_at, one.ended_at, now),
                one.created_by,
            )
            for one in runs
        ],
        ids=[str(one.run_id) for one in runs],
        empty="no runs (start one with: mitosis job start NAME|FILE)",
    )


def tasks_table(tasks: "Sequence[StepTask]") -> Table:
    return Table(
        data=[one.model_dump(mode="json") for one in tasks],
        columns=("index", "task", "state", "attempt", "took", "result"),
        rows=[
            (
                str(one.index),
                f"{one.task_group_id}/{one.task_id}",
                str(one.state),
                str(one.attempt),
                elapsed_text(one.started_at, one.finished_at),
                one.message or ("" if one.result is None else _json(one.result)[:MOST_OF_A_RESULT]),
            )
            for one in tasks
        ],
        ids=[f"{one.task_group_id}/{one.task_id}" for one in tasks],
        empty="no tasks",
        prose="result",
    )


def summary(run: "RunView", failed: "Mapping[str, Sequence[StepTask]]", now: datetime) -> list[str]:
    """Return the lines that a watch ends with: the tree, failed tasks of each step, and what to do next.

    ``failed``: some failed tasks of the steps that have any.
    """
    lines = [headline(run, now), *tree_lines(run, Rates(), now)]
    for step in run.steps:
        if step.state is StepState.FAILED and step.name in failed:
            lines += _failed_lines(step.name, step.failed, failed[step.name])
    if run.state in (RunState.FAILED, RunState.CANCELLED):
        lines.append(f"run again what has not succeeded: mitosis job rerun {run.run_id}")
    return lines


def _failed_lines(step: str, count: int, tasks: "Sequence[StepTask]") -> list[str]:
    lines = [
        f"  {step} {one.index}: {one_line(one.message or one.kind or 'failed')}"
        f"  (mitosis logs {one.task_group_id}/{one.task_id})"
        for one in tasks[:FAILED_TASKS_SHOWN]
    ]
    left = count - len(lines)
    return [*lines, f"  … {left} more failed tasks of {step}"] if left > 0 else lines


def _parameter(name: str, value: object) -> str:
    """Return a parameter as ``-p`` takes it: text as it is, other values as JSON."""
    return f"{name}={value if isinstance(value, str) else _json(value)}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
