"""Live output from agents: whose output has followers, and the chunks that agents write for them.

Output is advisory: rows are UNLOGGED, few, and deleted after a minute. No state of a task depends on
them. The part of an ended attempt that a follower missed comes from the tail in its result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.lifecycle import LeaseState
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
from mitosis.store.pg.long_poll import look_until
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store

SQL = load("output/writing.sql")
ROWS_KEPT = 256
"""Rows of one group, for all its followers: with chunks of 64 KiB that is 16 MiB at most."""
EXPIRY_MARGIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Followed:
    """The row of ``followed``: which tasks of the lease's group have followers."""

    group_id: int
    lease_state: LeaseState
    tasks: list[int]
    everything: bool
    expires_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Written:
    """The row of ``write_output``."""

    group_id: int
    lease_state: LeaseState
    written: int


@dataclass(frozen=True, slots=True)
class _WrittenWhole:
    """The row of ``write_whole``; ``tasks`` are those of the kept chunks."""

    group_id: int
    lease_state: LeaseState
    written: int
    tasks: list[int]
    full: bool


async def wait_for_followers(store: Store, manager_id: UUID, request: Followed) -> FollowedAnswer:
    """Return which tasks of a lease have followers; wait up to ``wait_seconds`` while the agent knows it."""
    row = await _read_followed(store, manager_id, request.epoch)
    if row is None or request.wait_seconds == 0:
        return _answer(row)
    known = (sorted(request.tasks), request.everything)

    async def look() -> _Followed | None:
        return await _read_followed(store, manager_id, request.epoch)

    def has_news(found: _Followed | None) -> bool:
        return found is None or known != (sorted(found.tasks), found.everything)

    def expires(found: _Followed | None) -> float | None:
        if found is None or found.expires_in_seconds is None:
            return None
        return found.expires_in_seconds + EXPIRY_MARGIN_SECONDS

    with store.listening.waiter(row.group_id, Topic.FOLLOWED) as waiter:
        last = await look_until(
            waiter,
            has_news,
            look,
            seconds=request.wait_seconds,
            again=expires,
        )
    return _answer(last)


async def write_output(store: Store, manager_id: UUID, request: WriteOutput) -> WriteOutputAnswer:
    """Store chunks for the followers; fenced by lease, manager and attempt."""
    if request.whole:
        return await _write_whole(store, manager_id, request)
    parameters = {"manager": manager_id, "epoch": request.epoch, **_columns(request.chunks)}
    async with store.database.connection() as connection:
        row = await fetch_one(connection, _Written, SQL["write_output"], parameters)
        if row is None:
            return WriteOutputAnswer(standing=LeaseStanding.GONE, written=0)
        if row.written:
            kept = {"group_number": row.group_id, "keep": ROWS_KEPT}
            await connection.execute(SQL["trim_output"], kept)
    return WriteOutputAnswer(standing=STANDING[row.lease_state], written=row.written)


async def _write_whole(store: Store, manager_id: UUID, request: WriteOutput) -> WriteOutputAnswer:
    """Store chunks until the readers of whole output have them: all, or none."""
    parameters = {
        "manager": manager_id,
        "epoch": request.epoch,
        "most": ROWS_KEPT,
        **_columns(request.chunks),
    }
    async with store.database.connection() as connection:
        row = await fetch_one(connection, _WrittenWhole, SQL["write_whole"], parameters)
        if row is not None and row.written:
            kept = {"group_number": row.group_id, "keep": ROWS_KEPT}
            await connection.execute(SQL["trim_output"], kept)
    if row is None:
        unread = sorted({chunk.task_id for chunk in request.chunks})
        return WriteOutputAnswer(standing=LeaseStanding.GONE, written=0, unread=unread)
    refused = {chunk.task_id for chunk in request.chunks}.difference(row.tasks)
    return WriteOutputAnswer(
        standing=STANDING[row.lease_state],
        written=row.written,
        full=row.full,
        unread=[] if row.full else sorted(refused),
    )


async def _read_followed(store: Store, manager_id: UUID, epoch: int) -> _Followed | None:
    parameters = {"manager": manager_id, "epoch": epoch}
    async with store.database.connection() as connection:
        return await fetch_one(connection, _Followed, SQL["followed"], parameters)


def _answer(row: _Followed | None) -> FollowedAnswer:
    if row is None:
        return FollowedAnswer(standing=LeaseStanding.GONE)
    return FollowedAnswer(
        standing=STANDING[row.lease_state], tasks=row.tasks, everything=row.everything
    )


def _columns(chunks: Sequence[OutputChunk]) -> dict[str, object]:
    return {
        "ids": number_array(chunk.task_id for chunk in chunks),
        "attempts": number_array(chunk.attempt for chunk in chunks),
        "streams": [chunk.stream for chunk in chunks],
        "positions": number_array(chunk.offset for chunk in chunks),
        "data": [chunk.data for chunk in chunks],
    }
