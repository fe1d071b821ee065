"""The members of a task group: adding and removing hosts, and matching them to its tags again (C-32)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from mitosis.contracts.errors import NotFound, PermissionDenied
from mitosis.contracts.group_managers import RefreshedManagers
from mitosis.contracts.http import GroupManagerInfo
from mitosis.store.groups.endings import notify_group
from mitosis.store.leases.ending import lock_group_and_leases
from mitosis.store.leases.membership import end_leases_of_others, hold_tags, with_membership
from mitosis.store.managers.views import some_managers
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.group import group_number

SQL = load("groups/assignment.sql")
HOSTS_TO_CHANGE = with_membership(SQL["hosts_to_change"])
MATCHED_MANAGERS = with_membership(SQL["matched_managers"])
MEMBERS = with_membership(SQL["members"])
Chosen = Literal["tag_matched", "user_specified", "removed"]


@dataclass(frozen=True, slots=True)
class _Named:
    """A host that a user names for a group."""

    manager_id: UUID
    manager_number: int | None
    """None: there is no such host."""
    chosen: Chosen | None
    assignment_method: Literal["tag_matched", "user_specified"]
    """Of the group."""
    allowed: bool
    """It has a write role in the user group that owns the task group."""
    is_member: bool

    @property
    def is_removable(self) -> bool:
        """Whether it is a member, was removed before, or could be matched by a later refresh."""
        may_match = self.allowed and self.assignment_method == "tag_matched"
        return self.is_member or self.chosen == "removed" or may_match


@dataclass(frozen=True, slots=True)
class _Manager:
    manager_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    manager_id: UUID
    assignment_method: Literal["tag_matched", "user_specified"]
    matched_tags: list[str] | None
    added_at: datetime | None
    added_by_user_id: UUID | None


async def listed_managers(store: Store, task_group_id: UUID) -> Sequence[GroupManagerInfo]:
    """Return the members of the group: matched by tags, or added by a user.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.connection() as connection:
        number = {"group_number": await group_number(connection, task_group_id)}
        members = {
            row.manager_id: row for row in await fetch_all(connection, _Member, MEMBERS, number)
        }
        shown = await some_managers(connection, store, list(members))
    return [_listed(one.model_dump(), members[one.manager_id]) for one in shown]


async def add_managers(
    store: Store, task_group_id: UUID, manager_ids: Sequence[UUID], user_id: UUID
) -> None:
    """Add hosts to the group, all or none. Idempotent; it ends an earlier removal.

    Raises:
        NotFound: there is no such group or manager.
        PermissionDenied: a manager has no write role in the group's user group.
    """
    async with store.database.transaction() as connection:
        number = await group_number(connection, task_group_id)
        await name_managers(connection, number, manager_ids, user_id)
        await notify_group(connection, number, scheduler=True)


async def name_managers(
    connection: Connection, number: int, manager_ids: Sequence[UUID], user_id: UUID
) -> None:
    """Record that a user added the hosts, in the caller's transaction.

    Raises:
        NotFound: there is no such manager.
        PermissionDenied: a manager has no write role in the group's user group.
    """
    hosts = await _named(connection, number, manager_ids)
    for host in hosts:
        if not host.allowed:
            raise PermissionDenied(
                f"the manager {host.manager_id} has no write role in the user group of this task"
                " group; give it one, or name another",
                field="manager_ids",
                manager_id=str(host.manager_id),
            )
    await _choose(connection, number, hosts, "user_specified", user_id)


async def remove_managers(
    store: Store, task_group_id: UUID, manager_ids: Sequence[UUID], user_id: UUID
) -> None:
    """Remove hosts from the group, all or none, until they are added again. Idempotent.

    A host finishes what it runs and returns the rest.

    Raises:
        NotFound: there is no such group or manager, or the host could not become a member.
    """
    async with store.database.transaction() as connection:
        group = await lock_group_and_leases(connection, task_group_id)
        hosts = await _named(connection, group.number, manager_ids)
        for host in hosts:
            if not host.is_removable:
                raise NotFound(
                    f"the manager {host.manager_id} is not a member of the task group",
                    field="manager_ids",
                    manager_id=str(host.manager_id),
                )
        await _choose(connection, group.number, hosts, "removed", user_id)
        await end_leases_of_others(connection, group.number)


async def refresh_managers(store: Store, task_group_id: UUID) -> RefreshedManagers:
    """Match hosts to the group's tags again; hosts that a user added or removed stay so.

    A host that no longer matches finishes what it runs and returns the rest.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.transaction() as connection:
        await hold_tags(connection)
        group = await lock_group_and_leases(connection, task_group_id)
        number = {"group_number": group.number}
        before = await fetch_all(connection, _Manager, MATCHED_MANAGERS, number)
        await connection.execute(SQL["match_again"], number)
        now = await fetch_all(connection, _Manager, MATCHED_MANAGERS, number)
        kept = await fetch_all(connection, _Manager, SQL["added_managers"], number)
        await end_leases_of_others(connection, group.number)
        await notify_group(connection, group.number)
    return RefreshedManagers(
        added_managers=[one.manager_id for one in now if one not in set(before)],
        removed_managers=[one.manager_id for one in before if one not in set(now)],
        user_specified_kept=[one.manager_id for one in kept],
    )


async def _named(
    connection: Connection, number: int, manager_ids: Sequence[UUID]
) -> Sequence[_Named]:
    """Return the hosts with these ids, in their order.

    Raises:
        NotFound: one does not exist.
    """
    values = {"group_number": number, "managers": list(manager_ids)}
    hosts = await fetch_all(connection, _Named, HOSTS_TO_CHANGE, values)
    for host in hosts:
        if host.manager_number is None:
            raise NotFound(
                f"no such manager: {host.manager_id}",
                field="manager_ids",
                manager_id=str(host.manager_id),
            )
    return hosts


async def _choose(
    connection: Connection, number: int, hosts: Sequence[_Named], chosen: Chosen, user_id: UUID
) -> None:
    values = {
        "group_number": number,
        "numbers": [host.manager_number for host in hosts],
        "chosen": chosen,
        "user": user_id,
    }
    await connection.execute(SQL["choose_managers"], values)


def _listed(manager: dict[str, object], member: _Member) -> GroupManagerInfo:
    return GroupManagerInfo.model_validate(
        {
            **manager,
            "assignment_method": member.assignment_method,
            "matched_tags": member.matched_tags,
            "added_at": member.added_at,
            "added_by_user_id": member.added_by_user_id,
        }
    )
