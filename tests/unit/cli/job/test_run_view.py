"""What the commands about runs print: fields, tables, and how a watch ends."""

from datetime import timedelta
from uuid import UUID

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.cli.job.run_view import (
    OF_STATE,
    counts_text,
    run_item,
    runs_table,
    summary,
    tasks_table,
)
from mitosis.contracts.lifecycle import RUN
from mitosis.contracts.runs import StepTask
from tests.support.run_views import NOON, run_view, step

LATER = NOON + timedelta(seconds=90)
GROUP = UUID(int=3)


def task(index: int, **facts: object) -> StepTask:
    known = {"task_id": 100 + index, "task_group_id": GROUP, "state": "failed", "attempt": 1}
    return StepTask.model_validate({"index": index, **known, **facts})


def test_every_end_of_a_run_has_an_exit_status_of_its_own() -> None:
    assert set(OF_STATE) == RUN.terminal
    assert len(set(OF_STATE.values())) == len(OF_STATE)
    assert [state for state, status in OF_STATE.items() if status is ExitStatus.OK] == ["success"]


def test_the_fields_of_a_run() -> None:
    run = run_view(
        step("a", "running"),
        tasks_created=100,
        tasks_open=3,
        tasks_succeeded=95,
        tasks_failed=2,
        parameters={"date": "2026-11-28", "publish": True, "files": ["a"]},
        stopped_by="failures",
    )
    fields = dict(run_item(run).fields)
    assert fields["tasks"] == "97 of 100 ended (95 succeeded, 2 failed)"
    assert fields["parameters"] == 'date=2026-11-28\npublish=true\nfiles=["a"]'
    assert fields["reason"] == "stopping (failures)"
    assert fields["job"] == "ann/pipeline version 3"
    assert "ended" not in fields
    assert run_item(run).id == str(run.run_id)


def test_a_run_without_tasks_has_counts_too() -> None:
    assert counts_text(run_view()) == "0 of 0 ended"


def test_the_list_of_runs() -> None:
    table = runs_table([run_view(step("a"), ended_at=LATER, state="failed")], LATER)
    (row,) = table.rows
    assert dict(zip(table.columns, row, strict=True))["took"] == "1m30s"
    assert table.ids == [str(UUID(int=7))]


def test_the_list_of_tasks_shows_the_result_or_why_there_is_none() -> None:
    table = tasks_table(
        [task(0, message="exit status 3"), task(1, state="succeeded", result={"a": 1})]
    )
    assert [row[-1] for row in table.rows] == ["exit status 3", '{"a": 1}']
    assert table.ids == [f"{GROUP}/100", f"{GROUP}/101"]


def test_the_end_names_the_first_failed_tasks_and_the_command_that_reruns() -> None:
    run = run_view(
        step("measure", "failed", is_array=True, total=200, created=200, succeeded=193, failed=7),
        step("merge", "skipped", after=["measure"], layer=1),
        state="failed",
        ended_at=LATER,
        tasks_failed=7,
    )
    tasks = [task(at, message=f"exit status {at}") for at in range(5)]
    assert summary(run, {"measure": tasks}, LATER) == [
        "pipeline version 3  failed 1m30s  2 of 2 steps  7 tasks failed",
        "✗ measure   failed  193 of 200, 7 failed",
        "└─ - merge  skipped",
        *(
            f"  measure {at}: exit status {at}  (mitosis logs {GROUP}/{100 + at})"
            for at in range(5)
        ),
        "  … 2 more failed tasks of measure",
        f"run again what has not succeeded: mitosis job rerun {run.run_id}",
    ]


@pytest.mark.parametrize("state", ["success", "cancelled"])
def test_the_end_of_a_run_without_failures(state: str) -> None:
    lines = summary(run_view(step("a", "succeeded"), state=state, ended_at=LATER), {}, LATER)
    assert len(lines) == (3 if state == "cancelled" else 2)
