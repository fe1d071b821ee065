"""What is shown of single tasks: first the ids of a page, then their rows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import Page, TaskFailureInfo, TaskInfo
from mitosis.contracts.ids import parse_task_uuid, task_uuid
from mitosis.contracts.lifecycle import TASK, TaskState
from mitosis.store.missing import require_task_group
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.statements import load

SQL = load("tasks/task_views.sql")
MAX_PAGE = 1000


async def page(
    database: Database,
    task_group_id: UUID,
    state: TaskState | None,
    after: str | None,
    limit: int,
) -> Page[TaskInfo]:
    """See :meth:`mitosis.store.tasks.tasks.TaskStore.list`."""
    size = page_limit(limit, MAX_PAGE)
    this = f"tasks of {task_group_id}"
    (last,) = decode_cursor(this, after, int) if after else (0,)
    async with database.connection() as connection:
        number = await group_number(connection, task_group_id)
        key = {"group_number": number, "after": last, "limit": size + 1}
        if state is not None:
            key["state"] = state.value
        found = await (await connection.execute(SQL[_ids_of(state)], key)).fetchall()
        ids = [row["id"] for row in found[:size]]
        tasks = await some(connection, number, ids)
    return Page(items=tasks, next=encode_cursor(this, ids[-1]) if len(found) > size else None)


async def group_number(connection: Connection, task_group_id: UUID) -> int:
    """Return the number of a task group, by which its rows refer to it.

    Raises:
        NotFound: there is no such group.
    """
    cursor = await connection.execute(SQL["number"], {"group": task_group_id})
    row = require_task_group(await cursor.fetchone(), task_group_id)
    return int(row["id"])


async def some(connection: Connection, group_number: int, ids: Sequence[int]) -> list[TaskInfo]:
    """Tasks by id; of the failures of their attempts all but ``detail``."""
    if not ids:
        return []
    values = {"group_number": group_number, "ids": number_array(ids)}
    rows = await (await connection.execute(SQL["some"], values)).fetchall()
    may_have = [row["task_id"] for row in rows if not _first_attempt_succeeded(row)]
    failures: dict[int, list[TaskFailureInfo]] = defaultdict(list)
    if may_have:
        values["ids"] = number_array(may_have)
        for row in await (await connection.execute(SQL["failures_of_some"], values)).fetchall():
            failures[row.pop("task_id")].append(TaskFailureInfo.model_validate(row))
    return [task_info(row, failures[row["task_id"]]) for row in rows]


def _first_attempt_succeeded(row: Mapping[str, Any]) -> bool:
    return bool(row["attempt"] == 1 and row["state"] == "succeeded")


async def one(database: Database, public_id: UUID) -> TaskInfo:
    """See :meth:`mitosis.store.tasks.tasks.TaskStore.get`."""
    missing = NotFound("no such task", task_id=str(public_id))
    try:
        group_number, task_id = parse_task_uuid(public_id)
    except ValueError:
        raise missing from None
    if task_id >= 1 << 63:
        raise missing
    values = {
        "group_number": group_number,
        "ids": number_array([task_id]),
        "task": task_id,
    }
    async with database.connection() as connection:
        row = await (await connection.execute(SQL["some"], values)).fetchone()
        if row is None:
            raise missing
        failures = await (await connection.execute(SQL["failures"], values)).fetchall()
    shown = [
        TaskFailureInfo.model_validate({**f, "detail": _document(f["detail"])}) for f in failures
    ]
    return task_info(row, shown)


def _ids_of(state: TaskState | None) -> str:
    if state is None:
        return "all_ids"
    return "ended_ids" if state in TASK.terminal else "unfinished_ids"


def task_info(row: Mapping[str, Any], failures: Sequence[TaskFailureInfo]) -> TaskInfo:
    """A row of ``some``, and what became of the attempts that failed."""
    return TaskInfo.model_validate(
        {
            **row,
            "task_uuid": task_uuid(row["group_id"], row["task_id"]),
            "spec": _document(row["spec"]),
            "detail": _document(row["detail"]),
            "failures": failures,
        }
    )


def _document(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
