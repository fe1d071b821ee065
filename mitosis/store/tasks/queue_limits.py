"""How many tasks may be unfinished: per group exactly, per user and in all as of a moment ago.

A submitter that is faster than the fleet is held back here, before the disk is full of what it submits.
"""

import time
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.errors import QueueFull, TooLarge
from mitosis.store.pg.database import Database
from mitosis.store.pg.statements import load

SQL = load("tasks/tasks.sql")
COUNTED_FOR_SECONDS = 1.0
"""The sums over all groups are so old at most: with N servers, N seconds of submits may come on top."""
RETRY_AFTER_SECONDS = 5.0
REMEMBERED_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Unfinished tasks: ready, running and waiting for another attempt."""

    per_group: int = 5_000_000
    per_user: int = 10_000_000
    """In all groups that one user has created."""
    total: int = 20_000_000


DEFAULT_LIMITS = QueueLimits()


@dataclass(frozen=True, slots=True)
class _Counted:
    at: float
    mine: int
    total: int


class QueueGuard:
    """Refuses submits to a queue that is full, by sums that are a moment old."""

    def __init__(self, database: Database, limits: QueueLimits) -> None:
        self.limits = limits
        self._database = database
        self._counted: dict[UUID, _Counted] = {}

    async def check(self, task_group_id: UUID, count: int) -> None:
        """May so many more tasks be queued?

        Raises:
            QueueFull: not now.
            TooLarge: never.
        """
        limits = self.limits
        if count > (most := min(limits.per_group, limits.per_user, limits.total)):
            raise TooLarge(
                f"{count} tasks never fit into a queue of at most {most}: submit fewer at once",
                field="tasks",
                limit=most,
            )
        counted = await self._count(task_group_id)
        if counted.total + count > self.limits.total:
            raise queue_full("in all", counted.total, self.limits.total)
        if counted.mine + count > self.limits.per_user:
            raise queue_full("in the groups of this user", counted.mine, self.limits.per_user)

    async def _count(self, task_group_id: UUID) -> _Counted:
        now = time.monotonic()
        known = self._counted.get(task_group_id)
        if known is not None and now - known.at < COUNTED_FOR_SECONDS:
            return known
        async with self._database.connection() as connection:
            cursor = await connection.execute(SQL["queued"], {"group": task_group_id})
            row = await cursor.fetchone()
        counted = _Counted(now, row["mine"], row["total"]) if row else _Counted(now, 0, 0)
        if len(self._counted) >= REMEMBERED_GROUPS:
            self._counted.clear()
        self._counted[task_group_id] = counted
        return counted


def queue_full(where: str, unfinished: int, limit: int) -> QueueFull:
    """The error, with what is there and what may be."""
    return QueueFull(
        f"{unfinished} tasks are unfinished {where} and the limit is {limit}:"
        " this is taken when some have ended; nothing was stored",
        unfinished=unfinished,
        limit=limit,
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
