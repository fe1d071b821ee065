"""Followers of live output: rows that request it from agents, and the chunks that agents wrote."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal
from uuid import UUID, uuid4

from mitosis.concurrency import cancel_and_wait
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("output/following.sql")
Stream = Literal["stdout", "stderr"]
ROWS_READ = 32
LIFE_SECONDS = 20.0
REFRESH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Interest:
    """What one follower follows: a task of a group, or (None) all of them."""

    group_number: int
    task_id: int | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A row of ``output_after``: bytes of one stream of one attempt."""

    id: int
    task_id: int
    attempt: int
    stream: Stream
    position: int
    data: bytes


@asynccontextmanager
async def following(store: Store, interest: Interest) -> AsyncIterator[None]:
    """Ask agents for this output while the context is open."""
    follower = uuid4()
    await _follow(store, follower, interest)
    refreshing = asyncio.create_task(_refresh(store, follower, interest))
    try:
        yield
    finally:
        await cancel_and_wait(refreshing)
        async with store.database.connection() as connection:
            await connection.execute(SQL["unfollow"], {"follower": follower})


async def read_chunks(store: Store, interest: Interest, after: int) -> Sequence[Chunk]:
    """Return the next chunks that agents wrote, at most ROWS_READ."""
    parameters = {
        "group_number": interest.group_number,
        "task": interest.task_id,
        "after": after,
        "limit": ROWS_READ,
    }
    async with store.database.connection() as connection:
        return await fetch_all(connection, Chunk, SQL["output_after"], parameters)


async def _refresh(store: Store, follower: UUID, interest: Interest) -> None:
    while True:
        await asyncio.sleep(REFRESH_SECONDS)
        await _follow(store, follower, interest)


async def _follow(store: Store, follower: UUID, interest: Interest) -> None:
    parameters = {
        "follower": follower,
        "group_number": interest.group_number,
        "task": interest.task_id,
        "seconds": LIFE_SECONDS,
    }
    async with store.database.connection() as connection:
        await connection.execute(SQL["follow"], parameters)
