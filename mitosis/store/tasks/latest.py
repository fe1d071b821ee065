"""What a submission asks of the registry: exact versions for ``latest``, and worker services that are there.

Both look at the registry before the tasks are queued, and hold no lock: a service may end right after. The
tasks then wait, and explain says so. A repeated submission has the versions of the first one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.named_tasks import LATEST, TaskName, parse_task_name, task_name
from mitosis.contracts.task import SubmittedTask
from mitosis.contracts.version_order import version_key
from mitosis.contracts.wire import SubmitAnswer
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.registry.health import with_health
from mitosis.store.registry.selection import NamedTask, no_workers
from mitosis.store.tasks.named import named_task_ids, user_group_of_services

SQL = load("tasks/named.sql")
WITH_WORKER = with_health(SQL["with_worker"])


@dataclass(frozen=True, slots=True)
class _Registered:
    """A named task of the registry."""

    namespace: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class _Named:
    """A row of ``names_of_tasks``."""

    id: int
    named_task: str | None


def asks_for_latest(tasks: Iterable[SubmittedTask]) -> bool:
    """Return whether a task names the version ``latest``."""
    return any(task.named_task is not None and _is_latest(task.named_task) for task in tasks)


async def named_tasks_of(
    connection: Connection,
    task_group_id: UUID,
    tasks: Sequence[SubmittedTask],
    require_worker: bool,
) -> tuple[Sequence[SubmittedTask], str | None]:
    """Return the tasks with exact versions, and the numbers of their named tasks as an array.

    Nothing is added to the registry for tasks that are refused.

    Raises:
        NotFound, InvalidRequest, NoWorkersAvailable: see :func:`exact_tasks`, :func:`require_workers`.
    """
    tasks = await exact_tasks(connection, task_group_id, tasks)
    if require_worker:
        await require_workers(connection, task_group_id, tasks)
    return tasks, await named_task_ids(connection, task_group_id, tasks)


async def exact_tasks(
    connection: Connection, task_group_id: UUID, tasks: Sequence[SubmittedTask]
) -> Sequence[SubmittedTask]:
    """Return the tasks with the highest version that a worker service supports in place of ``latest``.

    Raises:
        NotFound: no such group.
        InvalidRequest: the group takes no named tasks.
        NoWorkersAvailable: no service supports any version; names the nearest registered.
    """
    if not asks_for_latest(tasks):
        return tasks
    wanted = _names(task for task in tasks if asks_for_latest((task,)))
    group_name = await user_group_of_services(connection, task_group_id)
    found = await fetch_all(
        connection, _Registered, SQL["supported_versions"], _columns(task_group_id, wanted)
    )
    highest: dict[tuple[str, str], str] = {}
    for known in sorted(found, key=lambda known: version_key(known.version)):
        highest[known.namespace, known.name] = known.version
    for one in wanted:
        if (one.namespace, one.name) not in highest:
            raise await no_workers(connection, NamedTask(group_name, *one))
    exact = {
        task_name(*one): task_name(one.namespace, one.name, highest[one.namespace, one.name])
        for one in wanted
    }
    return [
        msgspec.structs.replace(task, named_task=exact[task.named_task])
        if task.named_task in exact
        else task
        for task in tasks
    ]


async def require_workers(
    connection: Connection, task_group_id: UUID, tasks: Sequence[SubmittedTask]
) -> None:
    """Check that some worker service can execute each task now; the tasks have exact versions.

    Raises:
        NotFound: no such group.
        InvalidRequest: the tasks or the group have nothing to do with worker services.
        NoWorkersAvailable: names the first task without one, and the nearest registered.
    """
    wanted = _names(tasks)
    if not wanted:
        raise InvalidRequest(
            "is for tasks with a named_task, which worker services execute", field="require_worker"
        )
    group_name = await user_group_of_services(connection, task_group_id)
    rows = await fetch_all(connection, _Registered, WITH_WORKER, _columns(task_group_id, wanted))
    there = {TaskName(one.namespace, one.name, one.version) for one in rows}
    for one in wanted:
        if one not in there:
            raise await no_workers(connection, NamedTask(group_name, *one))


async def exact_names(connection: Connection, answer: SubmitAnswer) -> SubmitAnswer:
    """Return the answer with the named task of each task, as PostgreSQL has it."""
    values = {"ids": number_array(answer.task_ids)}
    found = await fetch_all(connection, _Named, SQL["names_of_tasks"], values)
    names = {one.id: one.named_task for one in found}
    return msgspec.structs.replace(
        answer, named_tasks=[names.get(task_id) for task_id in answer.task_ids]
    )


def _is_latest(name: str) -> bool:
    return name.endswith(f"@{LATEST}")


def _names(tasks: Iterable[SubmittedTask]) -> list[TaskName]:
    """Return the distinct named tasks, in the order of the submission."""
    names = dict.fromkeys(task.named_task for task in tasks if task.named_task is not None)
    return [parse_task_name(name, "named_task", latest=True) for name in names]


def _columns(task_group_id: UUID, names: Sequence[TaskName]) -> dict[str, object]:
    return {
        "group": task_group_id,
        "namespaces": [one.namespace for one in names],
        "names": [one.name for one in names],
        "versions": [one.version for one in names],
    }
