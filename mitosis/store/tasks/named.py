"""The named tasks of a submission: groups of worker services take only those, others take none (P10)."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.named_tasks import TaskName, parse_task_name
from mitosis.contracts.task import SubmittedTask
from mitosis.store.missing import require_task_group
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load

SQL = load("tasks/named.sql")


@dataclass(frozen=True, slots=True)
class _NamedTask:
    id: int
    namespace: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """The row of ``kind``."""

    kind: str
    group_name: str


async def named_task_ids(
    connection: Connection, task_group_id: UUID, tasks: Sequence[SubmittedTask]
) -> str | None:
    """Return the number of the named task of each task as an array; None if no task names one.

    A name that is new in the user group of the task group is added: it is shown as a gap.

    Raises:
        NotFound: no such group.
        InvalidRequest: some tasks name one and others do not, or the group takes none.
    """
    if all(task.named_task is None for task in tasks):
        return None
    names = [_name(task, index) for index, task in enumerate(tasks)]
    distinct = sorted(set(names))
    values = {
        "group": task_group_id,
        "namespaces": [one.namespace for one in distinct],
        "names": [one.name for one in distinct],
        "versions": [one.version for one in distinct],
    }
    found = await fetch_all(connection, _NamedTask, SQL["named_tasks"], values)
    if len(found) < len(distinct):
        await connection.execute(SQL["add_named_tasks"], values)
        found = await fetch_all(connection, _NamedTask, SQL["named_tasks"], values)
    numbers = {TaskName(one.namespace, one.name, one.version): one.id for one in found}
    if not numbers:
        await user_group_of_services(connection, task_group_id)  # raises: it has some otherwise
    return number_array(numbers[name] for name in names)


async def user_group_of_services(connection: Connection, task_group_id: UUID) -> str:
    """Return the name of the user group of a group of worker services.

    Raises:
        NotFound: no such group.
        InvalidRequest: it takes no named tasks.
    """
    row = await fetch_one(connection, _Kind, SQL["kind"], {"group": task_group_id})
    group = require_task_group(row, task_group_id)
    if group.kind != "service":
        raise wrong_kind(named=True)
    return group.group_name


def wrong_kind(*, named: bool) -> InvalidRequest:
    """Return the refusal of tasks that the group does not take; ``named``: they have a ``named_task``."""
    if named:
        return InvalidRequest(
            "a group of the kind managed runs on hosts: give command or handler,"
            " or create a group with kind service",
            field="tasks[0].named_task",
        )
    return InvalidRequest(
        "a group of the kind service is executed by worker services: give the named_task,"
        ' as in "images/resize@1.4.0"',
        field="tasks[0].named_task",
    )


def _name(task: SubmittedTask, index: int) -> TaskName:
    if task.named_task is None:
        raise InvalidRequest(
            "the other tasks of the submission have a named_task: this one needs one too",
            field=f"tasks[{index}].named_task",
        )
    return parse_task_name(task.named_task, f"tasks[{index}].named_task")
