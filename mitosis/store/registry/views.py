"""Worker services, their histories and the coverage of named tasks, for users."""

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from mitosis.contracts.errors import WorkerNotFound
from mitosis.contracts.http import Page
from mitosis.contracts.worker_services import (
    NamedTaskInfo,
    RegistrationInfo,
    WorkerInfo,
    WorkerTaskInfo,
)
from mitosis.store.pg.database import Connection
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.registry.health import with_health
from mitosis.store.store import Store

SQL = load("registry/views.sql")
WORKERS = with_health(SQL["page_of_workers"])
HISTORY = with_health(SQL["history"])
TASKS_OF_WORKER = SQL["tasks_of_worker"].replace("$viewed$", SQL["viewed"])
NAMED_TASKS = with_health(SQL["named_tasks_page"]).replace("$viewed$", SQL["viewed"])
MAX_PAGE = 500
LAST = 2**63 - 1

Coverage = Literal["any", "none", "one"]


async def list_workers(
    store: Store, viewer_id: UUID, *, after: str | None = None, limit: int = 100
) -> Page[WorkerInfo]:
    """Return worker services of the viewer's user groups (an admin sees all), by id."""
    size = page_limit(limit, MAX_PAGE)
    key = decode_cursor("workers", after, str)[0] if after else ""
    values = {"viewer": viewer_id, "worker_id": None, "after": key, "limit": size + 1}
    async with store.database.connection() as connection:
        found = await fetch_all(connection, WorkerInfo, WORKERS, values)
    more = len(found) > size
    cursor = encode_cursor("workers", found[size - 1].worker_id) if more else None
    return Page(items=found[:size], next=cursor)


async def get_worker(store: Store, viewer_id: UUID, worker_id: str) -> WorkerInfo:
    """Return one worker service with the named tasks that it supports.

    Raises:
        WorkerNotFound: there is none, or the viewer may not see it.
    """
    values = {"viewer": viewer_id, "worker_id": worker_id, "after": "", "limit": 1}
    async with store.database.connection() as connection:
        found = await fetch_all(connection, WorkerInfo, WORKERS, values)
        if not found:
            raise WorkerNotFound(f"no such worker service: {worker_id}", worker_id=worker_id)
        tasks = await _tasks(connection, found[0].worker_uuid, viewer_id)
    return found[0].model_copy(update={"supported_tasks": tasks})


async def registration_history(
    store: Store, worker_uuid: UUID, *, after: str | None = None, limit: int = 100
) -> Page[RegistrationInfo]:
    """Return the registrations of a worker service, the last one first."""
    size = page_limit(limit, MAX_PAGE)
    before = decode_cursor("registrations", after, int)[0] if after else LAST
    values = {"worker": worker_uuid, "before": before, "limit": size + 1}
    async with store.database.connection() as connection:
        found = await fetch_all(connection, RegistrationInfo, HISTORY, values)
    more = len(found) > size
    cursor = encode_cursor("registrations", found[size - 1].registration_id) if more else None
    return Page(items=found[:size], next=cursor)


async def list_named_tasks(
    store: Store,
    viewer_id: UUID,
    *,
    available: Coverage = "any",
    after: str | None = None,
    limit: int = 100,
) -> Page[NamedTaskInfo]:
    """Return the named tasks of the viewer's user groups, and which worker services can execute them now.

    ``available``: all of them, those without a worker service, or those with a single one.
    """
    size = page_limit(limit, MAX_PAGE)
    key = decode_cursor("named-tasks", after, str, str, str, str) if after else ("", "", "", "")
    names = ("after_group", "after_namespace", "after_name", "after_version")
    values: dict[str, Any] = dict(zip(names, key, strict=True))
    values |= {"viewer": viewer_id, "wanted": available, "limit": size + 1}
    async with store.database.connection() as connection:
        found = await fetch_all(connection, NamedTaskInfo, NAMED_TASKS, values)
    cursor = None
    if len(found) > size:
        last = found[size - 1]
        cursor = encode_cursor(
            "named-tasks", last.group_name, last.namespace, last.name, last.version
        )
    return Page(items=found[:size], next=cursor)


async def _tasks(
    connection: Connection, worker_uuid: UUID, viewer_id: UUID
) -> Sequence[WorkerTaskInfo]:
    values = {"worker": worker_uuid, "viewer": viewer_id}
    return await fetch_all(connection, WorkerTaskInfo, TASKS_OF_WORKER, values)
