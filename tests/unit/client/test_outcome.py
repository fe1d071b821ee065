"""What a program gets for the end of a task: its value, or the exception that says why there is none."""

import pickle
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from mitosis.client.outcome import ResultUnreadable, TaskFailed, result_of
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.lifecycle import TaskState


def ended(state: TaskState = TaskState.SUCCEEDED, **facts: Any) -> TaskInfo:
    return TaskInfo(
        task_id=7,
        task_uuid=UUID(int=7),
        task_group_id=UUID(int=1),
        state=state,
        attempt=1,
        spec={"handler": "m:f"},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        **facts,
    )


def test_a_result_is_returned_and_a_missing_one_is_none() -> None:
    assert result_of(ended(detail={"result": [1]})) == [1]
    assert result_of(ended(detail=None)) is None


def test_a_stored_result_that_cannot_be_read_is_no_none() -> None:
    lost = {"members": ["result"], "read_it_with": "SELECT detail"}
    with pytest.raises(ResultUnreadable, match="SELECT detail"):
        result_of(ended(detail={"unreadable": lost}))


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"signal": 9}, "killed by SIGKILL"),
        ({"exit_code": 3}, "exit status 3"),
        ({"kind": "host_lost"}, "host lost"),
        ({"detail": {"message": "said"}}, "said"),
    ],
)
def test_a_failure_says_why(facts: dict[str, Any], why: str) -> None:
    task = ended(state=TaskState.FAILED, **facts)
    with pytest.raises(TaskFailed, match=why) as failed:
        result_of(task)
    again: TaskFailed = pickle.loads(pickle.dumps(failed.value))  # noqa: S301 - our own bytes
    assert (str(again), again.task) == (str(failed.value), task)
