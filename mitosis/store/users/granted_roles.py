"""The roles in user groups that a user gives to a machine which works for them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mitosis.contracts.accounts import RANK, Role, User
from mitosis.contracts.errors import InvalidRequest, NotFound, PermissionDenied
from mitosis.store.pg.database import Connection
from mitosis.store.users.accounts import GroupRole, roles_in


class GrantedRole(NamedTuple):
    """A user group by its number, and a role in it."""

    group_number: int
    role: Role


async def granted_roles(
    connection: Connection, user: User, groups: Sequence[str]
) -> list[GrantedRole]:
    """Return the roles that ``groups`` (``name`` or ``name:role``) give, or write in the user's own group.

    Raises:
        NotFound: there is no such user group, or the user has no role in it.
        PermissionDenied: the user has a lower role there.
        InvalidRequest: ``groups`` names a role that does not exist.
    """
    own: dict[str, Role] = {user.username: "write"}
    asked = dict(map(_parse, groups)) or own
    known = await roles_in(connection, user.user_id, list(asked))
    for name, role in asked.items():
        _check_role(user, known.get(name), name, role)
    return [GrantedRole(known[name].id, role) for name, role in asked.items()]


def _check_role(user: User, group: GroupRole | None, name: str, role: Role) -> None:
    held = None if group is None else "admin" if user.is_admin else group.role
    if held is None:  # who has no role in a group is not shown that it exists
        raise NotFound(f"no such user group: {name}", field="groups")
    if RANK[held] < RANK[role]:
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
