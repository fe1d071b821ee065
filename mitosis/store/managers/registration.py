"""Registering a manager: its row, its roles in user groups, and the version of its tokens."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from mitosis.contracts.accounts import RANK, Role, User
from mitosis.contracts.errors import InvalidRequest, NotFound, PermissionDenied
from mitosis.contracts.http import RegisterManager
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.users.accounts import GroupRole, find_account, roles_in

SQL = load("managers/registration.sql")


class Registered(NamedTuple):
    """A manager, and the version that its tokens carry."""

    manager_id: UUID
    token_version: int


@dataclass(frozen=True, slots=True)
class _Created:
    uuid: UUID
    token_version: int


@dataclass(frozen=True, slots=True)
class _Version:
    token_version: int


async def register_manager(store: Store, spec: RegisterManager, user_id: UUID) -> Registered:
    """Create a manager; it is OFFLINE until its agent says hello.

    Raises:
        NotFound: there is no such user or user group.
        PermissionDenied: the user has no such role there.
        InvalidRequest: ``groups`` names a role that does not exist.
    """
    async with store.database.transaction() as connection:
        user = await find_account(connection, user_id)
        if user is None:
            raise NotFound("no such user")
        own: dict[str, Role] = {user.username: "write"}
        asked = dict(map(_parse, spec.groups)) or own
        known = await roles_in(connection, user_id, list(asked))
        for name, role in asked.items():
            _check_role(user, known.get(name), name, role)
        created = await fetch_one(
            connection,
            _Created,
            SQL["register"],
            {
                "name": spec.name or generated_name(),
                "user": user_id,
                "tags": sorted(spec.tags),
                "labels": sorted(spec.labels),
                "group_numbers": [known[name].id for name in asked],
                "roles": list(asked.values()),
            },
        )
    if created is None:
        raise NotFound("no such user")
    return Registered(created.uuid, created.token_version)


async def token_version(store: Store, manager_id: UUID) -> int | None:
    """Return the version that valid tokens of this manager carry; None if there is no such manager.

    Cached for a few seconds.
    """

    async def read() -> int | None:
        async with store.database.connection() as connection:
            row = await fetch_one(
                connection, _Version, SQL["token_version"], {"manager": manager_id}
            )
        return None if row is None else row.token_version

    return await store.manager_token_versions.get(manager_id, read)


def generated_name() -> str:
    """Return a name for a host that is registered without one."""
    return f"host-{secrets.token_hex(3)}"


def _check_role(user: User, group: GroupRole | None, name: str, role: Role) -> None:
    if group is None:
        raise NotFound(f"no such user group: {name}", field="groups")
    held: Role | None = "admin" if user.is_admin else group.role
    if held is None or RANK[held] < RANK[role]:
        raise PermissionDenied(
            f"you do not have the role {role} in the user group {name}", field="groups"
        )


def _parse(text: str) -> tuple[str, Role]:
    """Parse ``name`` or ``name:role``."""
    name, colon, role = text.partition(":")
    roles: Mapping[str, Role] = {known: known for known in RANK}
    if not colon:
        return name, "write"
    if role not in roles:
        raise InvalidRequest(f"{role!r} is not a role; use read, write or admin", field="groups")
    return name, roles[role]
