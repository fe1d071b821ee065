"""Chooses worker services for named tasks, from PostgreSQL only: no process keeps a list of them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from mitosis.contracts.errors import NoWorkersAvailable
from mitosis.contracts.named_tasks import task_name
from mitosis.contracts.near_names import nearest
from mitosis.contracts.worker_health import WorkerHealth
from mitosis.contracts.worker_services import AvailableWorker
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.registry.health import with_health
from mitosis.store.store import Store

SQL = load("registry/selection.sql")
AVAILABLE = with_health(SQL["available"])
UNAVAILABLE = with_health(SQL["unavailable"])
ALL = 2**31 - 1
COMPARED = 200
"""So many named tasks are compared with one that has no worker service."""
SHOWN = 5


class NamedTask(NamedTuple):
    """A named task of a user group."""

    group_name: str
    namespace: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class _Unavailable:
    worker_id: str
    draining: bool
    health: WorkerHealth


@dataclass(frozen=True, slots=True)
class _Registered:
    namespace: str
    name: str
    version: str


async def find_available_worker(store: Store, task: NamedTask) -> AvailableWorker:
    """Return the worker service to choose: healthy, not drained, of the highest priority, heard last.

    Raises:
        NoWorkersAvailable: names the task, who supports it, and the nearest registered named tasks.
    """
    async with store.database.connection() as connection:
        found = await _available(connection, task, limit=1)
        if found:
            return found[0]
        raise await no_workers(connection, task)


async def list_workers_for_task(store: Store, task: NamedTask) -> Sequence[AvailableWorker]:
    """Return all worker services that can execute the named task now, the one to choose first."""
    async with store.database.connection() as connection:
        return await _available(connection, task, limit=ALL)


async def _available(
    connection: Connection, task: NamedTask, *, limit: int
) -> Sequence[AvailableWorker]:
    parameters = {**task._asdict(), "limit": limit}
    return await fetch_all(connection, AvailableWorker, AVAILABLE, parameters)


async def no_workers(connection: Connection, task: NamedTask) -> NoWorkersAvailable:
    """Return why no worker service can execute a named task now, with the nearest registered ones."""
    parameters = task._asdict()
    supporting = await fetch_all(
        connection, _Unavailable, UNAVAILABLE, {**parameters, "limit": SHOWN}
    )
    known = await fetch_all(
        connection, _Registered, SQL["nearest"], {**parameters, "limit": COMPARED}
    )
    near = nearest(
        (task.namespace, task.name, task.version),
        [(one.namespace, one.name, one.version) for one in known],
    )
    wanted = task_name(task.namespace, task.name, task.version)
    states = ", ".join(
        f"{one.worker_id} is {'drained' if one.draining else one.health}" for one in supporting
    )
    others = ", ".join(task_name(*key) for key in near)
    return NoWorkersAvailable(
        f"no worker service of the user group {task.group_name} can execute {wanted} now: "
        + (states or "none supports it")
        + (f"; nearest registered: {others}" if others else ""),
        **parameters,
        supporting=[asdict(one) for one in supporting],
        nearest=[task_name(*key) for key in near],
    )
