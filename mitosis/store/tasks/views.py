"""Single tasks as the API shows them: first the ids of a page, then their rows."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mitosis.contracts.http import Page, TaskFailureInfo, TaskInfo
from mitosis.contracts.ids import parse_task_uuid, task_uuid
from mitosis.contracts.lifecycle import TASK, TaskState
from mitosis.store.missing import require_task
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.group import group_number

SQL = load("tasks/views.sql")
MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class _Id:
    id: int


@dataclass(frozen=True, slots=True)
class _Task:
    """A row of ``tasks``."""

    task_id: int
    group_id: int
    task_group_id: UUID
    spec: str
    created_at: datetime
    state: TaskState
    attempt: int
    seq: int | None
    priority: int | None
    kind: str | None
    exit_code: int | None
    signal: int | None
    manager_name: str | None
    started_at: datetime | None
    finished_at: datetime | None
    detail: str | None

    @property
    def may_have_failures(self) -> bool:
        return self.attempt != 1 or self.state is not TaskState.SUCCEEDED


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed attempt; its detail only where one task is read."""

    attempt: int
    kind: str
    exit_code: int | None
    signal: int | None
    failed_at: datetime
    task_id: int = 0
    detail: str | None = None


async def list_tasks(
    store: Store,
    task_group_id: UUID,
    *,
    state: TaskState | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Page[TaskInfo]:
    """Return tasks of a group by id, their failures without ``detail``. ``limit`` at most 1,000.

    Raises:
        NotFound: no such group.
        InvalidRequest: ``after`` is not from an earlier page.
    """
    size = page_limit(limit, MAX_PAGE)
    this = f"tasks of {task_group_id}"
    (last,) = decode_cursor(this, after, int) if after else (0,)
    async with store.database.connection() as connection:
        number = await group_number(connection, task_group_id)
        key = {"group_number": number, "after": last, "limit": size + 1, "state": state}
        found = await fetch_all(connection, _Id, SQL[_ids_of(state)], key)
        ids = [row.id for row in found[:size]]
        tasks = await read_tasks(connection, number, ids)
    return Page(items=tasks, next=encode_cursor(this, ids[-1]) if len(found) > size else None)


async def read_tasks(
    connection: Connection, group_number: int, ids: Sequence[int]
) -> list[TaskInfo]:
    """Return tasks by id, their failures without ``detail``."""
    if not ids:
        return []
    values = {"group_number": group_number, "ids": number_array(ids)}
    tasks = await fetch_all(connection, _Task, SQL["tasks"], values)
    failures: dict[int, list[_Failure]] = defaultdict(list)
    if retried := [task.task_id for task in tasks if task.may_have_failures]:
        values["ids"] = number_array(retried)
        for failure in await fetch_all(connection, _Failure, SQL["failures_of_tasks"], values):
            failures[failure.task_id].append(failure)
    return [_task_info(task, failures[task.task_id]) for task in tasks]


async def read_task(store: Store, public_id: UUID) -> TaskInfo:
    """Return one task with its spec, result and every failed attempt.

    Raises:
        NotFound: no such task.
    """
    try:
        number, task_id = parse_task_uuid(public_id)
    except ValueError:
        return require_task(None, public_id)
    if task_id >= 1 << 63:
        return require_task(None, public_id)
    values = {"group_number": number, "ids": number_array([task_id]), "task": task_id}
    async with store.database.connection() as connection:
        task = await fetch_one(connection, _Task, SQL["tasks"], values)
        task = require_task(task, public_id)
        failures = await fetch_all(connection, _Failure, SQL["failures"], values)
    return _task_info(task, failures)


def _ids_of(state: TaskState | None) -> str:
    if state is None:
        return "all_ids"
    return "ended_ids" if state in TASK.terminal else "unfinished_ids"


def _task_info(task: _Task, failures: Sequence[_Failure]) -> TaskInfo:
    return TaskInfo(
        task_id=task.task_id,
        task_uuid=task_uuid(task.group_id, task.task_id),
        task_group_id=task.task_group_id,
        state=task.state,
        attempt=task.attempt,
        seq=task.seq,
        priority=task.priority,
        spec=_document(task.spec),
        kind=task.kind,
        exit_code=task.exit_code,
        signal=task.signal,
        manager_name=task.manager_name,
        created_at=task.created_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        detail=_document(task.detail),
        failures=[
            TaskFailureInfo(
                attempt=failure.attempt,
                kind=failure.kind,
                exit_code=failure.exit_code,
                signal=failure.signal,
                detail=_document(failure.detail),
                failed_at=failure.failed_at,
            )
            for failure in failures
        ],
    )


def _document(text: str | None) -> Any:
    """Return a JSON column that was read as text."""
    return None if text is None else msgspec.json.decode(text)
