"""The live lines of a run where there is little room."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from mitosis.cli.follow.display import Progress, live_lines
from mitosis.contracts.http import TaskGroupInfo

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("width", [39, 79, 139])
def test_the_count_of_failed_tasks_is_seen_at_every_width(width: int) -> None:
    group = TaskGroupInfo.model_validate(
        {
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
        }
    )
    lines = live_lines(Progress(group, NOON), width)
    assert any("failed 808" in line for line in lines), lines
    assert max(map(len, lines)) <= width
