"""Limits on unfinished tasks: exact per group; per user and in total as counted a moment ago.

They hold back a submitter that is faster than the fleet before its tasks fill the disk.
"""

from uuid import UUID

from mitosis.contracts.errors import QueueFull, TooLarge
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import QueueCount, Store

SQL = load("tasks/queue_limits.sql")
RETRY_AFTER_SECONDS = 5.0


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
        raise queue_full("in all", counted.total, limits.total)
    if counted.mine + count > limits.per_user:
        raise queue_full("in the groups of this user", counted.mine, limits.per_user)


async def _count_queue(store: Store, task_group_id: UUID) -> QueueCount:
    async with store.database.connection() as connection:
        parameters = {"group": task_group_id}
        counted = await fetch_one(connection, QueueCount, SQL["queued"], parameters)
    return counted or QueueCount(mine=0, total=0)


def queue_full(where: str, unfinished: int, limit: int) -> QueueFull:
    """Return the error, with the number of tasks and the limit."""
    return QueueFull(
        f"{unfinished} tasks are unfinished {where} and the limit is {limit}:"
        " this is taken when some have ended; nothing was stored",
        unfinished=unfinished,
        limit=limit,
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
