"""Retry: submit ended tasks of a group again, into the same group or another one, each once.

A retry comes in parts of a few thousand tasks, each one transaction that submits them and records which
new task replaces which. A part that is repeated under the same key gets the same answer; another retry
leaves out what this one submitted. The new task has the label ``retry-of:NUMBER``. Tasks that were cancelled
because one of these failed are submitted again too, with what they depend on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from mitosis.contracts.http import RetriedTasks, RetryBody
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.task import Dependency, SubmittedTask
from mitosis.store.missing import require_task_group
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.queue_limits import check_queue_limits
from mitosis.store.tasks.submit import submit_within

SQL = load("tasks/retry.sql")
MARK = "retry-of:"


@dataclass(frozen=True, slots=True)
class _Target:
    """The row of ``lock_retries``: the group that receives the tasks."""

    id: int


@dataclass(frozen=True, slots=True)
class _Edge:
    """A row of ``parents_to_retry``."""

    child: int
    parent: int
    present: int
    """The task that replaces the parent, or the parent."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A row of ``to_retry``."""

    task_id: int
    spec: str
    new_task_id: int | None


async def retry_tasks(store: Store, group: UUID, into: UUID, asked: RetryBody) -> RetriedTasks:
    """Submit one part of a retry of ``group`` into ``into``; the caller has checked permission for both.

    Raises:
        NotFound: no such group.
        TaskGroupClosed: ``into`` accepts no tasks.
        QueueFull: ``into`` has too many unfinished tasks now; repeat the same part later.
    """
    if not asked.dry_run:
        await check_queue_limits(store, into, 1)
    async with store.database.transaction() as connection:
        parameters = {"group": group, "into": into}
        target = await fetch_one(connection, _Target, SQL["lock_retries"], parameters)
        target = require_task_group(target, into)
        rows = await _select(connection, group, target.id, asked)
        old = [row.task_id for row in rows]
        following = old[-1] if len(rows) == asked.limit else None
        if asked.dry_run:
            return RetriedTasks(retry_of=old, task_ids=[], next=following)
        new = {row.task_id: row.new_task_id for row in rows if row.new_task_id is not None}
        fresh = [row for row in rows if row.new_task_id is None]
        if fresh:
            most = store.queue_limits.per_group
            tasks = await _again(connection, group, target.id, fresh)
            ids = (await submit_within(connection, most, into, tasks)).task_ids
            mine = {row.task_id: task_id for row, task_id in zip(fresh, ids, strict=True)}
            await _note(connection, target.id, asked.idempotency_key, mine)
            new |= mine
    return RetriedTasks(retry_of=old, task_ids=[new[number] for number in old], next=following)


def again(task_id: int, spec: str) -> SubmittedTask:
    """Return the same submission, marked with the number of the task that it replaces."""
    task = msgspec.json.decode(spec, type=SubmittedTask)
    kept = [label for label in task.labels if not label.startswith(MARK)]
    return msgspec.structs.replace(task, labels=[*kept, f"{MARK}{task_id}"])


async def _select(
    connection: Connection, group: UUID, into_number: int, asked: RetryBody
) -> Sequence[_Ended]:
    states = [TaskState.FAILED, TaskState.CANCELLED] if asked.cancelled else [TaskState.FAILED]
    parameters = {
        "group": group,
        "into_number": into_number,
        "states": [state.value for state in states],
        "reasons": [str(reason) for reason in asked.reasons],
        "after": asked.after,
        "limit": asked.limit,
        "key": asked.idempotency_key,
    }
    return await fetch_all(connection, _Ended, SQL["to_retry"], parameters)


async def _again(
    connection: Connection, group: UUID, into_number: int, fresh: Sequence[_Ended]
) -> list[SubmittedTask]:
    """Return the new tasks; they depend on the tasks that replace what the old ones depended on."""
    place = {row.task_id: at for at, row in enumerate(fresh)}
    values = {"group": group, "into_number": into_number, "old": number_array(place)}
    parents: dict[int, list[Dependency]] = {}
    for edge in await fetch_all(connection, _Edge, SQL["parents_to_retry"], values):
        of_child = parents.setdefault(edge.child, [])
        of_child.append([0, place[edge.parent]] if edge.parent in place else edge.present)
    return [
        msgspec.structs.replace(
            again(row.task_id, row.spec), depends_on=parents.get(row.task_id, [])
        )
        for row in fresh
    ]


async def _note(connection: Connection, into_number: int, key: str, new: Mapping[int, int]) -> None:
    """Record the new task of each old one."""
    values = {
        "into_number": into_number,
        "key": key,
        "old": number_array(new),
        "new": number_array(new.values()),
    }
    await connection.execute(SQL["note_retries"], values)
