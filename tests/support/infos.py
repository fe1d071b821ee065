"""Groups and tasks as the API answers them, for tests of what is shown of them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from mitosis.contracts.http import LeaseInfo, TaskGroupInfo, TaskInfo
from mitosis.contracts.lifecycle import LeaseState

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


ID = UUID(int=7)


LEASE = LeaseInfo(
    epoch=9,
    state=LeaseState.ACTIVE,
    task_group_id=ID,
    task_group_name="squares",
    manager_id=ID,
    manager_name="host-1",
    offered_at=NOON,
)


def group(**changes: Any) -> TaskGroupInfo:
    values: dict[str, Any] = {
        "task_group_id": ID,
        "name": "squares",
        "group_name": "ann",
        "state": "open",
        "settled": False,
        "tags": ["gpu"],
        "labels": [],
        "priority": 0,
        "worker_allocation_plan": {
            "worker_count": 2,
            "cpu_binding": {"strategy": "exclusive", "cores": [0, 1]},
        },
        "tasks_total": 8,
        "tasks_unfinished": 3,
        "tasks_completed": 5,
        "tasks_succeeded": 4,
        "tasks_failed": 1,
        "tasks_cancelled": 0,
        "created_at": NOON,
        "updated_at": NOON,
        "workflow_id": f"task-group/{ID}",
    }
    return TaskGroupInfo.model_validate({**values, **changes})


def task(**changes: Any) -> TaskInfo:
    values: dict[str, Any] = {
        "task_id": 17,
        "task_uuid": ID,
        "task_group_id": ID,
        "state": "failed",
        "attempt": 2,
        "spec": {"command": ["sh", "-c", "exit 3"]},
        "kind": "exit_code",
        "exit_code": 3,
        "manager_name": "host-1",
        "created_at": NOON,
        "started_at": NOON,
        "finished_at": NOON + timedelta(seconds=1.5),
        "detail": {
            "stderr": "no\x1b[2J\n",
            "stdout": "first\nlast\n",
            "stdout_bytes": 5000,
            "usage": {"user_seconds": 0.25, "max_rss_bytes": 5_000_000},
            "worker": 1,
            "cpus": [2, 3],
        },
        "failures": [
            {"attempt": 1, "kind": "signal", "signal": 9, "failed_at": NOON},
        ],
    }
    return TaskInfo.model_validate({**values, **changes})
