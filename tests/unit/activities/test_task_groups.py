"""Activities of a task group: one of them cancels any number of chunks."""

from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from activities import task_groups
from activities.task_groups import TaskGroupActivities, TaskGroupPort
from mitosis.contracts.control import DiscardAnswer

GROUP = uuid4()


class Chunks:
    """A store that cancels chunks of these sizes."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)

    async def discard(self, task_group_id: UUID) -> DiscardAnswer:
        assert task_group_id == GROUP
        cancelled = self.sizes.pop(0)
        return DiscardAnswer(cancelled=cancelled, remaining=bool(self.sizes))


def activities(chunks: Chunks) -> Any:
    return TaskGroupActivities(cast(TaskGroupPort, chunks))


async def test_one_activity_cancels_chunk_after_chunk() -> None:
    chunks = Chunks(10, 10, 3)
    assert await activities(chunks).discard(GROUP) == DiscardAnswer(cancelled=23, remaining=False)
    assert chunks.sizes == []


async def test_rows_that_others_hold_are_left_for_later() -> None:
    chunks = Chunks(10, 0, 5)
    assert await activities(chunks).discard(GROUP) == DiscardAnswer(cancelled=10, remaining=True)


async def test_it_ends_in_time_and_says_that_more_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_groups, "DISCARD_SECONDS", -1.0)
    chunks = Chunks(10, 10)
    assert await activities(chunks).discard(GROUP) == DiscardAnswer(cancelled=10, remaining=True)
