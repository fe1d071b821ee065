"""Live output of tasks: who follows, what agents write for them, and the way back in order.

Advisory from end to end: rows are UNLOGGED, few, and gone after a minute; no state of a task depends on
them. What a follower missed of an attempt that has ended comes from the tail in its result.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.wire import (
    Followed,
    FollowedAnswer,
    LeaseStanding,
    OutputChunk,
    WriteOutput,
    WriteOutputAnswer,
)
from mitosis.store.leases.ending import STANDING
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store

SQL = load("output/following.sql")

ROWS_KEPT = 256
"""Of one group, for all who follow it: with chunks of 64 KiB that is 16 MiB at most."""
ROWS_READ = 32
LIFE_SECONDS = 20.0
REFRESH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Interest:
    """What one follower follows: a task of a group, or (None) all of them."""

    group_number: int
    task_id: int | None


class OutputStore:
    """Output of running tasks between agents and followers."""

    def __init__(self, store: Store) -> None:
        assert store.wake is not None  # noqa: S101 - only where long polls are served
        self.database = store.database
        self.wake = store.wake

    # --- agents -------------------------------------------------------------------------------------

    async def followed(self, manager_id: UUID, request: Followed) -> FollowedAnswer:
        """Who follows the group of a lease; waits up to ``wait_seconds`` while the agent knows it."""
        deadline = time.monotonic() + request.wait_seconds
        row = await self._followed(manager_id, request.epoch)
        if row is None or request.wait_seconds == 0:
            return _answer(row)
        with self.wake.waiter(row["group_id"], Topic.FOLLOWED) as waiter:
            while True:
                row = await self._followed(manager_id, request.epoch)
                answer, left = _answer(row), deadline - time.monotonic()
                known = (sorted(request.tasks), request.everything)
                news = known != (sorted(answer.tasks), answer.everything)
                if row is None or news or left <= 0:
                    return answer
                expires = row["expires_in_seconds"]
                await waiter.wait(left if expires is None else min(left, expires + 0.1))

    async def write(self, manager_id: UUID, request: WriteOutput) -> WriteOutputAnswer:
        """Keep chunks for those who follow; fenced by lease, manager and attempt."""
        parameters = {"manager": manager_id, "epoch": request.epoch, **_columns(request.chunks)}
        async with self.database.connection() as connection:
            cursor = await connection.execute(SQL["write_output"], parameters)
            row = await cursor.fetchone()
            if row is None:
                return WriteOutputAnswer(standing=LeaseStanding.GONE, written=0)
            if row["written"]:
                kept = {"group_number": row["group_id"], "keep": ROWS_KEPT}
                await connection.execute(SQL["trim_output"], kept)
        return WriteOutputAnswer(standing=STANDING[row["lease_state"]], written=row["written"])

    async def _followed(self, manager_id: UUID, epoch: int) -> Mapping[str, Any] | None:
        parameters = {"manager": manager_id, "epoch": epoch}
        async with self.database.connection() as connection:
            return await (await connection.execute(SQL["followed"], parameters)).fetchone()

    # --- followers ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def following(self, interest: Interest) -> AsyncIterator[None]:
        """Agents are asked for this output while the context is open, and told when it closes."""
        follower = uuid4()
        await self._follow(follower, interest)
        refreshing = asyncio.create_task(self._refresh(follower, interest))
        try:
            yield
        finally:
            await cancel_and_wait(refreshing)
            async with self.database.connection() as connection:
                await connection.execute(SQL["unfollow"], {"follower": follower})

    async def rows(self, interest: Interest, after: int) -> Sequence[Mapping[str, Any]]:
        """The next rows that agents wrote, at most ROWS_READ."""
        parameters = {
            "group_number": interest.group_number,
            "task": interest.task_id,
            "after": after,
            "limit": ROWS_READ,
        }
        async with self.database.connection() as connection:
            return await (await connection.execute(SQL["output_after"], parameters)).fetchall()

    async def _refresh(self, follower: UUID, interest: Interest) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await self._follow(follower, interest)

    async def _follow(self, follower: UUID, interest: Interest) -> None:
        parameters = {
            "follower": follower,
            "group_number": interest.group_number,
            "task": interest.task_id,
            "seconds": LIFE_SECONDS,
        }
        async with self.database.connection() as connection:
            await connection.execute(SQL["follow"], parameters)


def _answer(row: Mapping[str, Any] | None) -> FollowedAnswer:
    if row is None:
        return FollowedAnswer(standing=LeaseStanding.GONE)
    return FollowedAnswer(
        standing=STANDING[row["lease_state"]], tasks=row["tasks"], everything=row["everything"]
    )


def _columns(chunks: Sequence[OutputChunk]) -> dict[str, Any]:
    return {
        "ids": number_array(chunk.task_id for chunk in chunks),
        "attempts": number_array(chunk.attempt for chunk in chunks),
        "streams": [chunk.stream for chunk in chunks],
        "positions": number_array(chunk.offset for chunk in chunks),
        "data": [chunk.data for chunk in chunks],
    }
