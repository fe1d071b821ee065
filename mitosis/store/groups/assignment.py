"""The list of managers of a task group: named by a user, or matched by tags."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.errors import NotFound, PermissionDenied
from mitosis.contracts.http import ManagerInfo, RefreshedManagers
from mitosis.store.groups.endings import notify_group
from mitosis.store.managers.views import some_managers
from mitosis.store.missing import require_task_group
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.group import group_number

SQL = load("groups/assignment.sql")


@dataclass(frozen=True, slots=True)
class _MayServe:
    group_number: int
    manager_number: int | None
    allowed: bool


@dataclass(frozen=True, slots=True)
class _Listed:
    uuid: UUID


@dataclass(frozen=True, slots=True)
class _Refreshed:
    added: list[UUID]
    removed: list[UUID]
    kept: list[UUID]


async def listed_managers(store: Store, task_group_id: UUID) -> Sequence[ManagerInfo]:
    """Return the managers listed for the group: matched by tags, or named by a user.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.connection() as connection:
        await group_number(connection, task_group_id)
        parameters = {"group": task_group_id}
        listed = await fetch_all(connection, _Listed, SQL["listed_managers"], parameters)
        return await some_managers(connection, store, [row.uuid for row in listed])


async def add_manager(store: Store, task_group_id: UUID, manager_id: UUID, user_id: UUID) -> None:
    """Name a manager for the group. Idempotent.

    Raises:
        NotFound: there is no such group or manager.
        PermissionDenied: the manager has no write role in the group's user group.
    """
    async with store.database.transaction() as connection:
        number = await list_manager(connection, task_group_id, manager_id, user_id)
        await notify_group(connection, number, scheduler=True)


async def list_manager(
    connection: Connection, task_group_id: UUID, manager_id: UUID, user_id: UUID
) -> int:
    """Record that a user named the manager, in the caller's transaction; return the group's number.

    Raises:
        NotFound: there is no such group or manager.
        PermissionDenied: the manager has no write role in the group's user group.
    """
    facts = await _may_serve(connection, task_group_id, manager_id)
    if facts.manager_number is None:
        raise NotFound(
            f"no such manager: {manager_id}", field="manager_ids", manager_id=str(manager_id)
        )
    if not facts.allowed:
        raise PermissionDenied(
            "the manager has no write role in the user group of this task group",
            field="manager_ids",
            manager_id=str(manager_id),
        )
    await connection.execute(
        SQL["name_manager"],
        {"group_number": facts.group_number, "manager": manager_id, "user": user_id},
    )
    return facts.group_number


async def remove_manager(store: Store, task_group_id: UUID, manager_id: UUID) -> None:
    """Remove a manager from the list; its live lease for the group, if any, starts to end.

    Raises:
        NotFound: there is no such group, or the manager is not listed.
    """
    async with store.database.transaction() as connection:
        facts = await _may_serve(connection, task_group_id, manager_id)
        removed = await connection.execute(
            SQL["unname_manager"],
            {
                "group_number": facts.group_number,
                "manager_number": facts.manager_number,
                "manager": manager_id,
            },
        )
        if removed.rowcount == 0:
            raise NotFound(
                "the manager is not listed", field="manager_ids", manager_id=str(manager_id)
            )


async def refresh_managers(store: Store, task_group_id: UUID) -> RefreshedManagers:
    """Match managers to the group's tags again; managers named by a user stay.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.transaction() as connection:
        await group_number(connection, task_group_id)
        parameters = {"group": task_group_id}
        row = await fetch_one(connection, _Refreshed, SQL["refresh_managers"], parameters)
    row = row or _Refreshed([], [], [])
    return RefreshedManagers(
        added_managers=row.added, removed_managers=row.removed, user_specified_kept=row.kept
    )


async def _may_serve(connection: Connection, task_group_id: UUID, manager_id: UUID) -> _MayServe:
    parameters = {"group": task_group_id, "manager": manager_id}
    facts = await fetch_one(connection, _MayServe, SQL["may_serve"], parameters)
    return require_task_group(facts, task_group_id)
