"""Registering a manager: its row, its roles in user groups, and the version of its tokens."""

import secrets
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import RegisterManager
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.users.accounts import find_account
from mitosis.store.users.granted_roles import granted_roles

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
        granted = await granted_roles(connection, user, spec.groups)
        created = await fetch_one(
            connection,
            _Created,
            SQL["register"],
            {
                "name": spec.name or generated_name(),
                "user": user_id,
                "tags": sorted(spec.tags),
                "labels": sorted(spec.labels),
                "group_numbers": [one.group_number for one in granted],
                "roles": [one.role for one in granted],
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
