"""Registering a manager: its row, and its roles in user groups."""

import secrets
from collections.abc import Mapping
from uuid import UUID

from mitosis.contracts.accounts import RANK, Role
from mitosis.contracts.errors import InvalidRequest, NotFound, PermissionDenied
from mitosis.contracts.http import RegisterManager
from mitosis.store.pg.database import Connection
from mitosis.store.pg.statements import load

SQL = load("managers/managers.sql")
USERS = load("users/users.sql")


async def register(
    connection: Connection, spec: RegisterManager, user_id: UUID
) -> tuple[UUID, int]:
    """See :meth:`mitosis.store.managers.contact.ManagerStore.register`; in the caller's transaction."""
    user = await (
        await connection.execute(USERS["user"], {"user_id": user_id, "username": None})
    ).fetchone()
    if user is None:
        raise NotFound("no such user")
    own: dict[str, Role] = {user["username"]: "write"}
    asked = dict(map(_parse, spec.groups)) or own
    cursor = await connection.execute(USERS["roles_in"], {"user_id": user_id, "names": list(asked)})
    known = {row["name"]: row for row in await cursor.fetchall()}
    for name, role in asked.items():
        if name not in known:
            raise NotFound(f"no such user group: {name}", field="groups")
        held: Role | None = "admin" if user["is_admin"] else known[name]["role"]
        if held is None or RANK[held] < RANK[role]:
            raise PermissionDenied(f"you have no {role} role in {name}", field="groups")
    row = await (
        await connection.execute(
            SQL["register"],
            {
                "name": spec.name or made_up_name(),
                "user": user_id,
                "tags": sorted(spec.tags),
                "labels": sorted(spec.labels),
                "group_numbers": [known[name]["id"] for name in asked],
                "roles": list(asked.values()),
            },
        )
    ).fetchone()
    if row is None:
        raise NotFound("no such user")
    return row["uuid"], row["token_version"]


def made_up_name() -> str:
    """For a host that is given none."""
    return f"host-{secrets.token_hex(3)}"


def _parse(text: str) -> tuple[str, Role]:
    """``name`` or ``name:role``."""
    name, colon, role = text.partition(":")
    roles: Mapping[str, Role] = {known: known for known in RANK}
    if not colon:
        return name, "write"
    if role not in roles:
        raise InvalidRequest(f"{role!r} is no role: write read, write or admin", field="groups")
    return name, roles[role]
