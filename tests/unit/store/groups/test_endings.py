"""How many tasks a chunk of a cancellation may have."""

from typing import Any, cast
from uuid import uuid4

import pytest

from mitosis.chunk_size import ChunkSize
from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.store.groups import endings
from mitosis.store.groups.endings import Discarded, Discarding
from mitosis.store.store import Store


async def test_a_chunk_that_is_too_slow_is_tried_with_fewer_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Temporal repeats the activity: at the same size it would fail for ever."""
    limits: list[int] = []

    async def discard_chunk(_: Any, __: Any, limit: int, after: int = 0) -> Discarded:
        limits.append(limit)
        if limit > 2:
            raise DatabaseUnavailable("canceling statement")
        return Discarded(cancelled=limit, seen_to=after + limit, remaining=True)

    monkeypatch.setattr(endings, "discard_chunk", discard_chunk)
    discarding, group = Discarding(cast(Store, None)), uuid4()
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            await discarding.discard(group)
    assert (await discarding.discard(group)).cancelled == limits[-1]
    first = ChunkSize().rows
    assert limits == [first, first // 10, first // 100]
