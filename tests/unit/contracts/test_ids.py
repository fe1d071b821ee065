"""Public ids of tasks."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.ids import parse_task_uuid, task_uuid


@given(group=st.integers(0, 2**48 - 1), task=st.integers(0, 2**63 - 1))
def test_a_task_uuid_carries_group_and_task(group: int, task: int) -> None:
    public = task_uuid(group, task)
    assert public.version == 8
    assert public.variant == "specified in RFC 4122"
    assert parse_task_uuid(public) == (group, task)


@given(group=st.integers(0, 2**48 - 1), tasks=st.sets(st.integers(0, 2**63 - 1), min_size=2))
def test_task_uuids_of_a_group_sort_as_its_tasks(group: int, tasks: set[int]) -> None:
    ordered = sorted(tasks)
    assert sorted(task_uuid(group, task) for task in tasks) == [
        task_uuid(group, task) for task in ordered
    ]


def test_another_uuid_is_not_a_task() -> None:
    with pytest.raises(ValueError, match="is not the id of a task"):
        parse_task_uuid(uuid4())
    with pytest.raises(ValueError, match="must be in"):
        task_uuid(2**48, 1)
    with pytest.raises(ValueError, match="must be in"):
        task_uuid(1, -1)
    assert isinstance(task_uuid(1, 1), UUID)
