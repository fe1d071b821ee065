"""Users, user groups, roles, passwords. Tokens are the API's; only their version is kept here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from mitosis.store.database import Database

Role = Literal["read", "write", "admin"]
RANK: Mapping[Role, int] = {"read": 1, "write": 2, "admin": 3}
"""A role includes those below it."""


@dataclass(frozen=True, slots=True)
class User:
    """An account, and its role in each of its groups by name."""

    user_id: UUID
    username: str
    is_admin: bool
    token_version: int
    groups: Mapping[str, Role]


class UserStore:
    """All access to users."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ensure_admin(self, username: str, password: str | None = None) -> User:
        """The admin account, made at the first call; later calls leave it as it is. Safe side by side."""
        raise NotImplementedError

    async def create(
        self, username: str, password: str | None = None, *, is_admin: bool = False
    ) -> User:
        """A new account with a user group of the same name in which it is admin.

        Raises:
            AlreadyExists: the name is taken by a user or a group.
            InvalidRequest: not a usable name.
        """
        raise NotImplementedError

    async def verify_password(self, username: str, password: str) -> User:
        """The account, if the password is right. Takes as long for an account that does not exist.

        Raises:
            Unauthenticated: no such account, it is locked, or the password is wrong.
        """
        raise NotImplementedError

    async def get(self, user_id: UUID) -> User | None:
        """The active account with its groups; None = none (or locked or deleted). Cached for 5 s."""
        raise NotImplementedError

    async def role_in_group(self, user_id: UUID, group_name: str) -> Role | None:
        """The user's role in a user group; an administrator has ``admin`` everywhere.

        Raises:
            NotFound: no such user group.
        """
        raise NotImplementedError

    async def role_in_task_group(self, user_id: UUID, task_group_id: UUID) -> Role | None:
        """The user's role in the user group that owns the task group.

        Raises:
            NotFound: no such task group.
        """
        raise NotImplementedError

    async def add_member(self, group_name: str, username: str, role: Role) -> None:
        """Give a user a role in a group; replaces the one they have.

        Raises:
            NotFound: no such group or user.
        """
        raise NotImplementedError
