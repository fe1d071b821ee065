"""What counts as a change of a task group has one owner: long polls and event streams agree."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.http import TaskGroupInfo
from mitosis.contracts.lifecycle import LeaseState, TaskGroupState
from mitosis.store.groups.changes import events_between, has_changed, is_reached

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUP, HOST = UUID(int=1), UUID(int=2)


def info(**given: Any) -> TaskGroupInfo:
    return TaskGroupInfo.model_validate(
        {
            "task_group_id": GROUP,
            "name": "campaign",
            "group_name": "team",
            "state": "open",
            "settled": False,
            "tags": [],
            "labels": [],
            "priority": 0,
            "worker_allocation_plan": {"worker_count": 1},
            "tasks_total": 9,
            "tasks_unfinished": 9,
            "tasks_completed": 0,
            "tasks_succeeded": 0,
            "tasks_failed": 0,
            "tasks_cancelled": 0,
            "created_at": NOW,
            "updated_at": NOW,
            "workflow_id": "task-group/1",
            **given,
        }
    )


def lease(epoch: int = 1, state: LeaseState = LeaseState.ACTIVE, **given: Any) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "state": state,
        "task_group_id": GROUP,
        "task_group_name": "campaign",
        "manager_id": HOST,
        "manager_name": "host-1",
        "offered_at": NOW,
        **given,
    }


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "state": st.sampled_from([TaskGroupState.OPEN, TaskGroupState.CLOSED]),
    "priority": st.integers(0, 1),
    "tags": st.sampled_from([["a"], []]),
    "labels": st.sampled_from([["a"], []]),
    "tasks_total": st.integers(9, 10),
    "tasks_completed": st.integers(0, 1),
    "tasks_failed": st.integers(0, 1),
    "tasks_running": st.none() | st.integers(0, 1),
    "tasks_per_second": st.none() | st.floats(0, 9),
    "estimated_completion_at": st.none() | st.just(NOW),
    "waiting_for": st.none() | st.just("no host"),
    "reason": st.none() | st.just("enough"),
    "counting": st.booleans(),
    "updated_at": st.sampled_from([NOW, NOW + timedelta(seconds=1)]),
    "close_deadline": st.none() | st.just(NOW),
    "leases": st.lists(
        st.builds(
            lease,
            st.integers(1, 2),
            st.sampled_from([LeaseState.ACTIVE, LeaseState.ENDING]),
            alive_until=st.sampled_from([NOW, NOW + timedelta(seconds=3)]),
        ),
        max_size=1,
    ),
}
groups = st.fixed_dictionaries({}, optional=FIELDS).map(lambda given: info(**given))


@given(groups, groups)
def test_a_long_poll_ends_exactly_where_a_stream_sends_a_snapshot(
    before: TaskGroupInfo, now: TaskGroupInfo
) -> None:
    snapshots = [event for event in events_between(before, now, 0) if event.kind == "group"]
    assert is_reached("changed", before, now) is bool(snapshots)


@pytest.mark.parametrize(
    "moved",
    [
        {"tasks_per_second": 3.0},
        {"estimated_completion_at": NOW},
        {"waiting_for": "host-1 has not been in contact for 42 s"},
        {"leases": [lease(alive_until=NOW + timedelta(seconds=3))]},
    ],
    ids=["rate", "estimate", "why it waits", "contact"],
)
def test_what_the_clock_alone_moves_is_no_change(moved: dict[str, Any]) -> None:
    assert not has_changed(info(leases=[lease()]), info(**{"leases": [lease()], **moved}))


@pytest.mark.parametrize(
    "moved",
    [
        {"tasks_running": 1},
        {"tags": ["gpu"]},
        {"leases": []},
        {"leases": [lease(state=LeaseState.ENDING)]},
    ],
    ids=["counter", "field", "lease gone", "lease ending"],
)
def test_anything_else_is_a_change(moved: dict[str, Any]) -> None:
    assert has_changed(info(leases=[lease()]), info(**{"leases": [lease()], **moved}))


def test_each_long_poll_ends_where_it_should() -> None:
    first = info()
    complete = info(state=TaskGroupState.COMPLETE)
    settled = info(state=TaskGroupState.COMPLETE, settled=True)
    assert [is_reached("complete", first, now) for now in (first, complete)] == [False, True]
    assert [is_reached("settled", first, now) for now in (complete, settled)] == [False, True]
    assert is_reached("changed", settled, settled), "nothing more can happen to it"
