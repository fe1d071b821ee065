"""Retry: ended tasks of a group submitted again, into itself or into another one, each once.

In parts of a few thousand, each one transaction that submits and notes what became of what. A part that
is asked for again under the same key is answered again; another retry leaves out what this one did. The
new task has the label ``retry-of:NUMBER``, so that anyone can see what it replaces.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import RetriedTasks, RetryBody
from mitosis.contracts.task import SubmittedTask
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.queue_limits import check_queue_limits
from mitosis.store.tasks.submits import submit_within

SQL = load("tasks/retries.sql")
MARK = "retry-of:"

Row = Mapping[str, Any]


async def retry(store: Store, group: UUID, into: UUID, asked: RetryBody) -> RetriedTasks:
    """One part of a retry of ``group`` into ``into``; the caller has checked permission for both.

    Raises:
        NotFound: no such group.
        TaskGroupClosed: ``into`` accepts no tasks.
        QueueFull: ``into`` has too many unfinished tasks now; the same part may be asked for again.
    """
    if not asked.dry_run:
        await check_queue_limits(store, into, 1)
    async with store.database.transaction() as connection:
        cursor = await connection.execute(SQL["lock_retries"], {"group": group, "into": into})
        target = await cursor.fetchone()
        if target is None:
            raise NotFound("no such task group", task_group_id=str(into))
        rows = await _chosen(connection, group, target["id"], asked)
        old = [row["task_id"] for row in rows]
        following = old[-1] if len(rows) == asked.limit else None
        if asked.dry_run:
            return RetriedTasks(retry_of=old, task_ids=[], next=following)
        new = {row["task_id"]: row["new_task_id"] for row in rows if row["new_task_id"] is not None}
        fresh = [row for row in rows if row["new_task_id"] is None]
        if fresh:
            most = store.queue_limits.per_group
            new |= await _submit(connection, most, into, target["id"], fresh, asked)
    return RetriedTasks(retry_of=old, task_ids=[new[number] for number in old], next=following)


def again(task_id: int, spec: str) -> SubmittedTask:
    """The same submission, marked with the number of the task that it replaces."""
    task = msgspec.json.decode(spec, type=SubmittedTask)
    kept = [label for label in task.labels if not label.startswith(MARK)]
    return msgspec.structs.replace(task, labels=[*kept, f"{MARK}{task_id}"])


async def _chosen(
    connection: Connection, group: UUID, into_number: int, asked: RetryBody
) -> Sequence[Row]:
    parameters = {
        "group": group,
        "into_number": into_number,
        "states": ["failed", "cancelled"] if asked.cancelled else ["failed"],
        "reasons": [str(reason) for reason in asked.reasons],
        "after": asked.after,
        "limit": asked.limit,
        "key": asked.idempotency_key,
    }
    return await (await connection.execute(SQL["to_retry"], parameters)).fetchall()


async def _submit(
    connection: Connection,
    most: int,
    into: UUID,
    into_number: int,
    fresh: Sequence[Row],
    asked: RetryBody,
) -> dict[int, int]:
    """New task by old one."""
    tasks = [again(row["task_id"], row["spec"]) for row in fresh]
    ids = (await submit_within(connection, most, into, tasks)).task_ids
    new = {row["task_id"]: task_id for row, task_id in zip(fresh, ids, strict=True)}
    values = {
        "into_number": into_number,
        "key": asked.idempotency_key,
        "old": number_array(new),
        "new": number_array(new.values()),
    }
    await connection.execute(SQL["note_retries"], values)
    return new
