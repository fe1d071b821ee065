"""Limits on unfinished tasks: exact per group; per user and in total as counted a moment ago.

They hold back a submitter that is faster than the fleet before its tasks fill the disk.
"""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.errors import QueueFull, TooLarge
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import QueueCount, Store

SQL = load("tasks/queue_limits.sql")
RETRY_AFTER_SECONDS = 5.0
IN_GROUP = "in the group"
OF_USER = "in the groups of this user"
IN_ALL = "in all"


@dataclass(slots=True)
class QueueRoom:
    """So many more tasks may be queued, and why not more."""

    tasks: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Counted:
    unfinished: int
    mine: int
    total: int


async def check_queue_limits(store: Store, task_group_id: UUID, count: int) -> None:
    """Check whether ``count`` more tasks may be queued.

    Raises:
        QueueFull: not now.
        TooLarge: never.
    """
    limits = store.queue_limits
    if count > (most := min(limits.per_group, limits.per_user, limits.total)):
        raise TooLarge(
            f"{count} tasks never fit into a queue of at most {most}: submit fewer at once",
            field="tasks",
            limit=most,
        )
    counted = await store.queue_counts.get(
        task_group_id, lambda: _count_queue(store, task_group_id)
    )
    if counted.total + count > limits.total:
        raise queue_full(IN_ALL, counted.total, limits.total)
    if counted.mine + count > limits.per_user:
        raise queue_full(OF_USER, counted.mine, limits.per_user)


async def _count_queue(store: Store, task_group_id: UUID) -> QueueCount:
    async with store.database.connection() as connection:
        counted = await fetch_one(connection, _Counted, SQL["queued"], {"group": task_group_id})
    return QueueCount(mine=0, total=0) if counted is None else _kept(counted)


def _kept(counted: _Counted) -> QueueCount:
    return QueueCount(mine=counted.mine, total=counted.total)


async def queue_room(connection: Connection, store: Store, task_group_id: UUID | None) -> QueueRoom:
    """Return how many more tasks may be queued in a group, by the limit that allows the fewest.

    Of a group that is gone: any number, for its refusal says more.
    """
    counted = await fetch_one(connection, _Counted, SQL["queued"], {"group": task_group_id})
    limits = store.queue_limits
    if counted is None or task_group_id is None:
        return QueueRoom(limits.per_group, "")
    store.queue_counts.put(task_group_id, _kept(counted))
    rooms = (
        QueueRoom(limits.per_group - counted.unfinished, _waits(IN_GROUP, limits.per_group)),
        QueueRoom(limits.per_user - counted.mine, _waits(OF_USER, limits.per_user)),
        QueueRoom(limits.total - counted.total, _waits(IN_ALL, limits.total)),
    )
    least = min(rooms, key=lambda one: one.tasks)
    return QueueRoom(max(least.tasks, 0), least.reason)


def _waits(where: str, limit: int) -> str:
    """Return why tasks are not created; without a count, so that it changes only with the limit."""
    return f"it waits for room: up to {limit} tasks may be unfinished {where}"


def waits_for_room(error: QueueFull) -> str:
    """Return why tasks are not created whose group has become full since it was looked at."""
    return _waits(IN_GROUP, int(error.facts["limit"]))


def queue_full(where: str, unfinished: int, limit: int) -> QueueFull:
    """Return the error, with the number of tasks and the limit."""
    return QueueFull(
        f"{unfinished} tasks are unfinished {where} and the limit is {limit}:"
        " this is taken when some have ended; nothing was stored",
        unfinished=unfinished,
        limit=limit,
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
