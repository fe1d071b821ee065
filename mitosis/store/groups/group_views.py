"""What is shown of task groups: to people (``TaskGroupInfo``) and to their workflow (``GroupView``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import DictRow

from mitosis.contracts.control import GroupView
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import CancelStats, Page, TaskGroupInfo
from mitosis.contracts.temporal_names import task_group_workflow_id
from mitosis.store.groups.group_filter import GroupFilter
from mitosis.store.leases.reasons import read_waiting, waiting_for
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("groups/task_groups.sql")
MAX_PAGE = 500

_ANY: Mapping[str, Any] = {
    "group": None,
    "viewer": None,
    "states": [],
    "settled": None,
    "tags": [],
    "labels": [],
    "name": None,
    "after": None,
    "limit": None,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A group as shown, and its number for those who wait for it."""

    number: int
    info: TaskGroupInfo


async def one(store: Store, task_group_id: UUID) -> Seen:
    """Everything about one group.

    Raises:
        NotFound: no such group.
    """
    async with store.database.connection() as connection:
        cursor = await connection.execute(SQL["show"], {**_ANY, "group": task_group_id})
        row = await cursor.fetchone()
        if row is None:
            raise NotFound("no such task group", task_group_id=str(task_group_id))
        parameters = {"group_number": row["number"], "unfinished": row["tasks_unfinished"]}
        details = await (await connection.execute(SQL["details"], parameters)).fetchone()
        more = {**(details or {}), "waiting_for": await _waiting_for(connection, store, row)}
    more["estimated_completion_at"] = _estimate(row["tasks_unfinished"], more)
    return Seen(row["number"], _info(row, more))


async def cancel_stats(database: Database, task_group_id: UUID) -> CancelStats:
    """What has become of the unfinished tasks of a cancelled group so far.

    Raises:
        NotFound: no such group.
    """
    async with database.connection() as connection:
        cursor = await connection.execute(SQL["cancel_stats"], {"group": task_group_id})
        row = await cursor.fetchone()
    if row is None:
        raise NotFound("no such task group", task_group_id=str(task_group_id))
    return CancelStats.model_validate(row)


async def page(
    database: Database, viewer_id: UUID, which: GroupFilter, after: str | None, limit: int
) -> Page[TaskGroupInfo]:
    """Groups a user may read, newest first."""
    size = page_limit(limit, MAX_PAGE)
    (number,) = decode_cursor("task-groups", after, int) if after else (None,)
    parameters = {
        **_ANY,
        "viewer": viewer_id,
        "states": [state.value for state in which.states],
        "settled": which.settled,
        "tags": list(which.tags),
        "labels": list(which.labels),
        "name": which.name and _like(which.name),
        "after": number,
        "limit": size + 1,
    }
    async with database.connection() as connection:
        rows = await (await connection.execute(SQL["show"], parameters)).fetchall()
    last = rows[size - 1] if len(rows) > size else None
    return Page(
        items=[_info(row, {}) for row in rows[:size]],
        next=None if last is None else encode_cursor("task-groups", last["number"]),
    )


async def view(store: Store, task_group_id: UUID) -> GroupView:
    """The group as its workflow sees it; ``exists=False`` when there is none."""
    async with store.database.connection() as connection:
        cursor = await connection.execute(SQL["observe"], {"group": task_group_id})
        row = await cursor.fetchone()
        if row is None:
            return GroupView(task_group_id=task_group_id, exists=False)
        explained = {**row, "waiting_for": await _waiting_for(connection, store, row)}
    return GroupView.model_validate(explained)


async def _waiting_for(connection: Connection, store: Store, row: DictRow) -> str | None:
    if row["settled"]:
        return None
    facts = await read_waiting(connection, store, row["number"])
    return None if facts is None else waiting_for(facts)


def _info(row: Mapping[str, Any], more: Mapping[str, Any]) -> TaskGroupInfo:
    workflow_id = task_group_workflow_id(row["task_group_id"])
    return TaskGroupInfo.model_validate({**row, **more, "workflow_id": workflow_id})


def _estimate(unfinished: int, details: Mapping[str, Any]) -> datetime | None:
    """When it would be done at the present rate; None when nothing is left or nothing is known."""
    rate = details.get("tasks_per_second")
    if not unfinished or not rate:
        return None
    seconds = min(unfinished / rate, timedelta(days=36_500).total_seconds())
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _like(pattern: str) -> str:
    """``nightly-*`` as a LIKE pattern in which nothing else is special."""
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%")
