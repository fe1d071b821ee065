"""Deletes what is kept no longer (C-34): in small chunks, whenever it is called; it says when to call again.

Each kind of row has a row in ``retention``: when its next pass begins, and how far the present one has come.
A pass looks at what is old enough in the order of its age, one chunk in each transaction, so it goes on after
any interruption. What something still needs is passed over, and looked at again by the next pass: an attempt
whose report would count, the journal of a host that was cut off, the result of a group that is not settled.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from mitosis.chunk_size import ChunkSize
from mitosis.contracts.errors import DatabaseUnavailable, NotFound
from mitosis.contracts.retention import RETENTION_KINDS, KeptRows, Retention, RetentionKind
from mitosis.store.groups.removal import remove_settled
from mitosis.store.leases.ending import lock_group_and_leases
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.stopping import remove_ended
from mitosis.store.store import Store

SQL = load("retention/deletion.sql")
OF_SERVICES = load("retention/services.sql")
GONE_SERVICES = OF_SERVICES["gone_services"].replace("$unneeded$", OF_SERVICES["unneeded"])
DELETE_SERVICES = OF_SERVICES["delete_services"].replace("$unneeded$", OF_SERVICES["unneeded"])
PASS_EVERY_SECONDS = 3600.0
SLICE_SECONDS = 1.0
"""One call works for about so long."""
PAUSE_SECONDS = 1.0
"""And is repeated after this time if more is to be deleted."""
JOURNAL_SECONDS = 600.0
"""For so long a host has been in contact when it has handed in what was in its journal."""
LONG_AGO: LiteralString = "-infinity"

PAGES: Mapping[RetentionKind, LiteralString] = {
    "leases": SQL["leases"],
    "environments": SQL["environments"],
    "hook_runs": SQL["hook_runs"],
    "worker_registrations": SQL["worker_registrations"],
    "worker_named_tasks": OF_SERVICES["worker_named_tasks"],
    "hosts": SQL["hosts"],
    "deleted_groups": SQL["deleted_groups"],
}
OF_GROUP: Sequence[LiteralString] = (
    SQL["failures"],
    SQL["submissions"],
    SQL["host_failures"],
    SQL["durations"],
)


@dataclass(frozen=True, slots=True)
class _Pass:
    kind: RetentionKind
    seen_to: datetime | None
    first: bool


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What one chunk has deleted, and how far the pass has come; None: to its end."""

    deleted: int
    seen_to: datetime | None


@dataclass(frozen=True, slots=True)
class _Page:
    seen_to: datetime | None
    due: list[UUID]


@dataclass(frozen=True, slots=True)
class _Group:
    group_id: int
    settled_at: datetime


@dataclass(frozen=True, slots=True)
class _Services:
    services: list[int]
    seen_to: datetime | None


@dataclass(frozen=True, slots=True)
class _Next:
    seconds: float | None


class ExpiredRows:
    """The deletion in one process: it knows how many rows a chunk may have."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._size = ChunkSize()

    async def delete(self, slice_seconds: float = SLICE_SECONDS) -> float:
        """Delete what is due, for about ``slice_seconds``; return in how many seconds to call again.

        Any number of processes may call it at once.
        """
        until = time.monotonic() + slice_seconds
        await add_kinds(self._store)
        while (began := time.monotonic()) < until:
            try:
                more = await delete_expired_chunk(self._store, self._size.rows)
            except DatabaseUnavailable:
                self._size.failed()
                raise
            if not more:
                return await _next_in_seconds(self._store)
            self._size.took(time.monotonic() - began)
        return PAUSE_SECONDS


async def add_kinds(store: Store) -> None:
    """Ensure that each kind of row of this version has its row in ``retention``."""
    async with store.database.connection() as connection:
        await connection.execute(SQL["add_kinds"], {"kinds": list(RETENTION_KINDS)})


async def delete_expired_chunk(store: Store, limit: int) -> bool:
    """Delete of up to ``limit`` rows those that are kept no longer; return whether anything was due."""
    async with store.database.in_index_order() as connection:
        kinds = {"kinds": list(RETENTION_KINDS)}
        found = await fetch_one(connection, _Pass, SQL["take"], kinds)
        if found is None:
            return False
        given = {
            "kept": _kept_seconds(store, found.kind),
            "seen_to": found.seen_to or LONG_AGO,
            "limit": limit,
            "groups": 1,  # locks of several could meet those of a submit in another order
            "journal_seconds": JOURNAL_SECONDS,
        }
        chunk = await _chunk(connection, found.kind, given)
        progress = {
            "kind": found.kind,
            "first": found.first,
            "deleted": chunk.deleted,
            "seen_to": chunk.seen_to,
            "kept": given["kept"],
            "every": PASS_EVERY_SECONDS,
        }
        ends = chunk.seen_to is None
        await connection.execute(SQL["finish" if ends else "advance"], progress)
    return True


async def show_retention(store: Store) -> Retention:
    """Return what is kept for how long, and what has been deleted of it."""
    async with store.database.connection() as connection:
        return Retention(kinds=tuple(await fetch_all(connection, KeptRows, SQL["show"], {})))


async def _chunk(
    connection: Connection, kind: RetentionKind, given: Mapping[str, object]
) -> _Chunk:
    if kind == "task_groups":
        return await _delete_groups(connection, given)
    if kind == "runs":
        return await _delete_runs(connection, given)
    if kind == "group_bookkeeping":
        return await _delete_bookkeeping(connection, given)
    if kind == "worker_services":
        return await _delete_services(connection, given)
    return await fetch_one(connection, _Chunk, PAGES[kind], given) or _Chunk(0, None)


async def _delete_bookkeeping(connection: Connection, given: Mapping[str, object]) -> _Chunk:
    """Delete up to ``limit`` rows that a group, settled long ago, has left. Its tasks and results stay."""
    group = await fetch_one(connection, _Group, SQL["due_group"], given)
    if group is None:
        return _Chunk(0, None)
    of_group = {**given, "group_number": group.group_id}
    for statement in OF_GROUP:
        if deleted := (await connection.execute(statement, of_group)).rowcount:
            return _Chunk(deleted, group.settled_at)
    await connection.execute(SQL["bookkeeping_deleted"], of_group)
    return _Chunk(0, group.settled_at)


async def _delete_groups(connection: Connection, given: Mapping[str, object]) -> _Chunk:
    """Begin the deletion of those of a page of settled groups whose time has passed."""
    page = await fetch_one(connection, _Page, SQL["settled_groups"], given)
    if page is None:
        return _Chunk(0, None)
    removed = 0
    for uuid in page.due:
        with suppress(NotFound):  # deleted since
            group = await lock_group_and_leases(connection, uuid)
            removed += await remove_settled(connection, group.number)
    return _Chunk(removed, page.seen_to)


async def _delete_runs(connection: Connection, given: Mapping[str, object]) -> _Chunk:
    """Delete those of a page of ended runs whose time has passed, with their own task groups."""
    page = await fetch_one(connection, _Page, SQL["ended_runs"], given)
    if page is None:
        return _Chunk(0, None)
    removed = 0
    for uuid in page.due:
        with suppress(NotFound):
            removed += await remove_ended(connection, uuid)
    return _Chunk(removed, page.seen_to)


async def _delete_services(connection: Connection, given: Mapping[str, object]) -> _Chunk:
    """Delete those of a page of worker services that are gone, once they cannot register any more."""
    page = await fetch_one(connection, _Services, GONE_SERVICES, given)
    if page is None:
        return _Chunk(0, None)
    gone = {**given, "services": page.services}
    deleted = (await connection.execute(DELETE_SERVICES, gone)).rowcount if page.services else 0
    return _Chunk(deleted, page.seen_to)


async def _next_in_seconds(store: Store) -> float:
    async with store.database.connection() as connection:
        found = await fetch_one(connection, _Next, SQL["next"], {"kinds": list(RETENTION_KINDS)})
    seconds = None if found is None else found.seconds
    return PASS_EVERY_SECONDS if seconds is None else max(seconds, PAUSE_SECONDS)


def _kept_seconds(store: Store, kind: RetentionKind) -> float | None:
    terms = store.retention
    kept = terms.task_groups if kind in {"task_groups", "runs"} else terms.bookkeeping
    return None if kept is None else kept.total_seconds()
