"""Cancels single tasks: of a list, or all that a filter names.

A cancelled task has its result at once, in the transaction that takes it out of the queue. No claim finds it
any more, and the report of an attempt that still runs is superseded. The host of such an attempt gets an
order to stop it with each renewal, until it has reported or returned the attempt.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.task_cancel import (
    CancelledTask,
    CancelledTasks,
    CancelOutcome,
    CancelTasks,
    TaskFilter,
)
from mitosis.store.missing import require_task_group
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("tasks/cancel.sql")
CHUNK = 5_000
"""So many tasks of a filter are cancelled by one call."""


@dataclass(frozen=True, slots=True)
class _Group:
    number: int
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class _Matching:
    id: int
    claimed: bool


@dataclass(frozen=True, slots=True)
class _Cancelled:
    unclaimed: Sequence[int] = ()
    claimed: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class _Ended:
    task_id: int
    state: TaskState


async def cancel_tasks(store: Store, task_group_id: UUID, asked: CancelTasks) -> CancelledTasks:
    """Cancel the tasks of a list, or the next part of those that a filter names. Idempotent.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.transaction() as connection:
        parameters = {"group": task_group_id}
        group = require_task_group(
            await fetch_one(connection, _Group, SQL["lock_for_cancel"], parameters), task_group_id
        )
        if asked.task_ids is None:
            return await _by_filter(connection, group, asked)
        return await _of_list(connection, group, asked, list(dict.fromkeys(asked.task_ids)))


async def _of_list(
    connection: Connection, group: _Group, asked: CancelTasks, ids: Sequence[int]
) -> CancelledTasks:
    found = await _matching(connection, group, asked, ids)
    done = found if asked.dry_run else await _cancel(connection, group, asked, ids)
    outcomes = dict.fromkeys(done.unclaimed, CancelOutcome.CANCELLED)
    outcomes |= dict.fromkeys(done.claimed, CancelOutcome.STOPPING)
    values = {"group_number": group.number, "ids": number_array(ids)}
    ended = await fetch_all(connection, _Ended, SQL["ended_before"], values)
    states = {one.task_id: one.state for one in ended}
    tasks = [
        CancelledTask(
            task_id=number,
            outcome=outcomes.get(
                number, CancelOutcome.ENDED if number in states else CancelOutcome.UNKNOWN
            ),
            state=states.get(number),
        )
        for number in ids
    ]
    counts = Counter(one.outcome for one in tasks)
    return CancelledTasks(
        cancelled=counts[CancelOutcome.CANCELLED],
        stopping=counts[CancelOutcome.STOPPING],
        ended=counts[CancelOutcome.ENDED],
        unknown=counts[CancelOutcome.UNKNOWN],
        tasks=tasks,
    )


async def _by_filter(connection: Connection, group: _Group, asked: CancelTasks) -> CancelledTasks:
    found = await _matching(connection, group, asked, None)
    ids = sorted((*found.unclaimed, *found.claimed))
    done = found if asked.dry_run or not ids else await _cancel(connection, group, asked, ids)
    return CancelledTasks(
        cancelled=len(done.unclaimed),
        stopping=len(done.claimed),
        next=ids[-1] if len(ids) == CHUNK else None,
    )


async def _matching(
    connection: Connection, group: _Group, asked: CancelTasks, ids: Sequence[int] | None
) -> _Cancelled:
    """Return the unfinished tasks of the list, or the next ones of the filter."""
    which = asked.filter or TaskFilter()
    values = {
        "group_number": group.number,
        "ids": None if ids is None else number_array(ids),
        "states": list(which.states),
        "min_priority": which.min_priority,
        "max_priority": which.max_priority,
        "labels": msgspec.json.encode(which.labels).decode(),
        "submitted_after": which.submitted_after,
        "submitted_before": which.submitted_before,
        "after": asked.after,
        "limit": CHUNK if ids is None else len(ids),
    }
    rows = await fetch_all(connection, _Matching, SQL["matching"], values)
    return _Cancelled(
        [row.id for row in rows if not row.claimed], [row.id for row in rows if row.claimed]
    )


async def _cancel(
    connection: Connection, group: _Group, asked: CancelTasks, ids: Sequence[int]
) -> _Cancelled:
    which = asked.filter or TaskFilter()
    grace = asked.grace_seconds
    values = {
        "group_number": group.number,
        "ids": number_array(ids),
        "states": list(which.states),
        "reason": asked.reason,
        "grace": group.grace_seconds if grace is None else grace,
    }
    done = await fetch_one(connection, _Cancelled, SQL["cancel_tasks"], values)
    return done or _Cancelled()
