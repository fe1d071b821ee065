"""Single tasks as the API shows them: first the ids of a page, then their rows."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mitosis.contracts.http import Page, TaskFailureInfo, TaskInfo
from mitosis.contracts.ids import parse_task_uuid, task_uuid
from mitosis.contracts.lifecycle import ListedState, TaskState
from mitosis.contracts.task_progress import TaskProgressInfo
from mitosis.store.missing import missing_task_group, require_task
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.paging import page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.group import group_number
from mitosis.store.tasks.pages import ids_of_page
from mitosis.store.tasks.readable import readable
from mitosis.store.tasks.repetition import Counts, repetition

SQL = load("tasks/views.sql")
MAX_PAGE = 1000


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
    worker_id: str | None
    configuration_version: int | None
    fraction: float | None
    stage: str | None
    message: str | None
    progress_at: datetime | None
    checkpoint: str | None
    started_at: datetime | None
    finished_at: datetime | None
    detail: str | None
    next_attempt_at: datetime | None = None
    exit_failures: int | None = None
    max_attempts: int | None = None
    crash_failures: int | None = None
    lost_count: int | None = None
    terminations: int | None = None
    waits_for: int | None = None

    @property
    def may_have_failures(self) -> bool:
        return self.attempt != 1 or self.state is not TaskState.SUCCEEDED


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed attempt; ``detail`` is read only for a single task."""

    attempt: int
    kind: str
    exit_code: int | None
    signal: int | None
    failed_at: datetime
    first_attempt: int | None
    failure_count: int
    task_id: int = 0
    detail: str | None = None


async def list_tasks(
    store: Store,
    task_group_id: UUID,
    *,
    state: TaskState | ListedState | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Page[TaskInfo]:
    """Return tasks of a group by id, their failures without ``detail``. ``limit`` at most 1,000.

    Delayed ones come by the time of their next attempt. A page may have fewer tasks and yet a ``next``.

    Raises:
        NotFound: no such group.
        InvalidRequest: ``after`` is not from an earlier page.
    """
    size = page_limit(limit, MAX_PAGE)
    async with store.database.in_index_order() as connection:
        number = await group_number(connection, task_group_id)
        listed = None if state is None else ListedState(state)
        page = await ids_of_page(connection, (task_group_id, number), listed, after, size)
        tasks = await read_tasks(connection, number, page.ids)
    if listed is ListedState.DELAYED:
        place = {task_id: index for index, task_id in enumerate(page.ids)}
        tasks.sort(key=lambda one: place[one.task_id])
    return Page(items=tasks, next=page.next)


async def read_tasks(
    connection: Connection, group_number: int, ids: Sequence[int]
) -> list[TaskInfo]:
    """Return tasks by id, their failures without ``detail``.

    Raises:
        NotFound: the group has been deleted since the caller read the ids.
    """
    if not ids:
        return []
    values = {"group_number": group_number, "ids": number_array(ids)}
    found = await fetch_all(connection, _Task, SQL["tasks"], values)
    if len(found) < len(ids):
        raise missing_task_group()
    failures: dict[int, list[_Failure]] = defaultdict(list)
    if retried := [row.task_id for row in found if row.may_have_failures]:
        values["ids"] = number_array(retried)
        for failure in await fetch_all(connection, _Failure, SQL["failures_of_tasks"], values):
            failures[failure.task_id].append(failure)
    return [_task_info(row, failures[row.task_id]) for row in found]


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
        row = await fetch_one(connection, _Task, SQL["tasks"], values)
        row = require_task(row, public_id)
        failures = await fetch_all(connection, _Failure, SQL["failures"], values)
    return _task_info(row, failures)


def _progress(row: _Task) -> TaskProgressInfo | None:
    if row.progress_at is None:
        return None
    return TaskProgressInfo(
        fraction=None if row.fraction is None else round(row.fraction, 4),
        stage=row.stage,
        message=row.message,
        recorded_at=row.progress_at,
        checkpoint=None if row.checkpoint is None else json.loads(row.checkpoint),
    )


def _task_info(row: _Task, failures: Sequence[_Failure]) -> TaskInfo:
    return TaskInfo(
        task_id=row.task_id,
        task_uuid=task_uuid(row.group_id, row.task_id),
        task_group_id=row.task_group_id,
        state=row.state,
        attempt=row.attempt,
        seq=row.seq,
        priority=row.priority,
        spec=readable(row.spec, f"spec FROM task WHERE id = {row.task_id}"),
        kind=row.kind,
        exit_code=row.exit_code,
        signal=row.signal,
        manager_name=row.manager_name,
        worker_id=row.worker_id,
        configuration_version=row.configuration_version,
        progress=_progress(row),
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        detail=readable(row.detail, f"detail FROM task_result WHERE task_id = {row.task_id}"),
        failures=[
            TaskFailureInfo(
                attempt=failure.attempt,
                kind=failure.kind,
                exit_code=failure.exit_code,
                signal=failure.signal,
                detail=readable(
                    failure.detail, f"detail FROM task_failures WHERE task_id = {row.task_id}"
                ),
                failed_at=failure.failed_at,
                first_attempt=failure.first_attempt,
                failure_count=failure.failure_count,
            )
            for failure in failures
        ],
        next_attempt_at=row.next_attempt_at,
        waits_for=row.waits_for,
        repetition=_repetition(row),
    )


def _repetition(row: _Task) -> str | None:
    return repetition(
        Counts(
            exit_failures=row.exit_failures or 0,
            max_attempts=row.max_attempts or 1,
            crash_failures=row.crash_failures or 0,
            lost_count=row.lost_count or 0,
            terminations=row.terminations or 0,
        )
    )
