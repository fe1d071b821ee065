"""The live lines of a run where there is little room."""

import io
from datetime import UTC, datetime
from uuid import UUID

import pytest

from mitosis.cli.follow.display import (
    LiveDisplay,
    PlainDisplay,
    Progress,
    live_lines,
    plain_line,
)
from mitosis.cli.group.view import counts_text
from mitosis.contracts.http import TaskGroupInfo

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def squares(**facts: object) -> Progress:
    group = {
        "task_group_id": UUID(int=1),
        "workflow_id": "task-group/1",
        "name": "squares",
        "group_name": "ann",
        "state": "closed",
        "settled": False,
        "tags": [],
        "labels": [],
        "priority": 0,
        "worker_allocation_plan": {"worker_count": 192},
        "tasks_total": 1_000_000,
        "tasks_unfinished": 200_192,
        "tasks_completed": 799_808,
        "tasks_succeeded": 799_000,
        "tasks_failed": 808,
        "tasks_cancelled": 0,
        "tasks_running": 192,
        "created_at": NOON,
        "updated_at": NOON,
        **facts,
    }
    return Progress(TaskGroupInfo.model_validate(group), NOON)


@pytest.mark.parametrize("width", [39, 79, 139])
def test_the_count_of_failed_tasks_is_seen_at_every_width(width: int) -> None:
    lines = live_lines(squares(), width)
    assert any("failed 808" in line for line in lines), lines
    assert max(map(len, lines)) <= width


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_without_a_terminal_is_never_older_than_ten_seconds() -> None:
    """Two tasks of a minute: the last change comes seconds after the first line, and nothing later."""
    clock, stream = Clock(), io.StringIO()
    display = PlainDisplay(stream, clock)
    display.show(squares(tasks_running=0))
    clock.now = 3.0
    display.show(squares(tasks_running=2))
    display.show(squares(tasks_running=1))
    for second in range(4, 60):
        clock.now = second
        display.tick()
    shown = [line.split("run=")[1].split()[0] for line in stream.getvalue().splitlines()]
    assert shown == ["0", "2", "1"]


def test_the_last_state_is_drawn_on_a_terminal_too() -> None:
    clock, stream = Clock(), io.StringIO()
    display = LiveDisplay(stream, clock)
    display.show(squares(tasks_running=0))
    display.show(squares(tasks_running=2))
    assert "running 2" not in stream.getvalue()
    clock.now = 1.0
    display.tick()
    assert "running 2" in stream.getvalue()


def test_cancelled_tasks_are_not_completed() -> None:
    cancelled = {
        "tasks_total": 600,
        "tasks_unfinished": 0,
        "tasks_completed": 5,
        "tasks_succeeded": 5,
        "tasks_failed": 0,
        "tasks_cancelled": 595,
        "tasks_running": 0,
    }
    progress = squares(**cancelled)
    assert " 0.8% ok=5 fail=0 cancelled=595 run=0 ready=0" in plain_line(progress)
    assert any("cancelled 595" in line for line in live_lines(progress, 79))
    assert counts_text(progress.group) == "5 of 600 completed (5 succeeded, 595 cancelled)"
