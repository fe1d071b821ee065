"""Facts about the task group of tasks: its number, its progress, and notifications of its changes."""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.store.missing import require_task_group
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load

SQL = load("tasks/group.sql")


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a task group and how many of its tasks have ended."""

    number: int
    state: TaskGroupState
    unfinished: int
    ended: int


@dataclass(frozen=True, slots=True)
class _Number:
    id: int


async def group_number(connection: Connection, task_group_id: UUID) -> int:
    """Return the number of a task group.

    Raises:
        NotFound: no such group.
    """
    row = await fetch_one(connection, _Number, SQL["group_number"], {"group": task_group_id})
    return require_task_group(row, task_group_id).id


async def group_progress(connection: Connection, task_group_id: UUID) -> Progress:
    """Return the progress of a task group.

    Raises:
        NotFound: no such group.
    """
    row = await fetch_one(connection, Progress, SQL["progress"], {"group": task_group_id})
    return require_task_group(row, task_group_id)


async def watch_group(database: Database, number: int) -> None:
    """Ask PostgreSQL to notify of the next change of this group; read the group afterwards."""
    async with database.connection() as connection:
        await connection.execute(SQL["watch"], {"group_number": number})
