"""Users, user groups, roles, passwords. Tokens are the API's; only their version is kept here."""

import asyncio
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from psycopg.errors import UniqueViolation

from mitosis.contracts.accounts import Role, User
from mitosis.contracts.errors import AlreadyExists, InvalidRequest, NotFound, Unauthenticated
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("users/users.sql")

_USERNAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_hasher = PasswordHasher()


class UserStore:
    """All access to users."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database

    async def ensure_admin(self, username: str, password: str | None = None) -> User:
        """The admin account, made at the first call; later calls leave it as it is. Safe side by side.

        Raises:
            AlreadyExists: a user group that is not this account's has the name.
        """
        row = await self._row(username=username)
        if row is None:
            try:
                return await self.create(username, password, is_admin=True)
            except AlreadyExists:
                row = await self._row(username=username)  # another process was quicker
        if row is None:
            raise AlreadyExists(f"a user group is called {username} already", username=username)
        return _user(row)

    async def create(
        self, username: str, password: str | None = None, *, is_admin: bool = False
    ) -> User:
        """A new account with a user group of the same name in which it is admin.

        Raises:
            AlreadyExists: the name is taken by a user or a group.
            InvalidRequest: not a usable name.
        """
        if not _USERNAME.fullmatch(username):
            raise InvalidRequest(
                "must be 1 to 100 letters, digits, dots, underscores and dashes, starting with a"
                " letter or digit",
                field="username",
            )
        hashed = None if password is None else await asyncio.to_thread(_hasher.hash, password)
        try:
            made = await self._one(
                "create", username=username, password_hash=hashed, is_admin=is_admin
            )
        except UniqueViolation:
            made = None  # the group's name was taken between the look and the insert
        if made is None:
            raise AlreadyExists(f"the name {username} is taken", username=username)
        return _user(await self._row(user_id=made["user_id"]) or {})

    async def verify_password(self, username: str, password: str) -> User:
        """The account, if the password is right. Takes as long for an account that does not exist.

        Raises:
            Unauthenticated: no such account, it is locked, or the password is wrong.
        """
        row = await self._row(username=username)
        known: str | None = row["password_hash"] if row else None
        async with self._store.hashing:
            hashed = known if known is not None else await asyncio.to_thread(_hash_of_nothing)
            right = await asyncio.to_thread(_verify, hashed, password)
        if row is None or known is None or not right:
            raise Unauthenticated("unknown user or wrong password", reason="login_failed")
        return _user(row)

    async def get(self, user_id: UUID) -> User | None:
        """The active account with its groups; None = none (or locked or deleted). Cached for 5 s."""

        async def read() -> User | None:
            row = await self._row(user_id=user_id)
            return None if row is None else _user(row)

        return await self._store.users.get(user_id, read)

    async def role_in_group(self, user_id: UUID, group_name: str) -> Role | None:
        """The user's role in a user group; an administrator has ``admin`` everywhere.

        Raises:
            NotFound: no such user group.
        """
        row = await self._one("role_in_group", user_id=user_id, group_name=group_name)
        if row is None:
            raise NotFound(f"there is no user group {group_name}", group_name=group_name)
        role: Role | None = row["role"]
        return role

    async def role_in_task_group(self, user_id: UUID, task_group_id: UUID) -> Role | None:
        """The user's role in the user group that owns the task group. One that they have is cached for 5 s.

        Raises:
            NotFound: no such task group.
        """

        async def read() -> Role | None:
            row = await self._one(
                "role_in_task_group", user_id=user_id, task_group_id=task_group_id
            )
            if row is None:
                raise NotFound("there is no such task group", task_group=str(task_group_id))
            role: Role | None = row["role"]
            return role

        return await self._store.roles.get(
            (user_id, task_group_id), read, keep=lambda role: role is not None
        )

    async def add_member(self, group_name: str, username: str, role: Role) -> None:
        """Give a user a role in a group; replaces the one they have.

        Raises:
            NotFound: no such group or user.
        """
        given = await self._one("add_member", group_name=group_name, username=username, role=role)
        if given is None:
            raise NotFound(
                "there is no such user or user group", group_name=group_name, username=username
            )
        self._store.users.clear()
        self._store.roles.clear()

    async def _row(
        self, *, user_id: UUID | None = None, username: str | None = None
    ) -> dict[str, Any] | None:
        return await self._one("user", user_id=user_id, username=username)

    async def _one(self, statement: str, **parameters: object) -> dict[str, Any] | None:
        async with self._database.connection() as connection:
            return await (await connection.execute(SQL[statement], parameters)).fetchone()


def _user(row: Mapping[str, Any]) -> User:
    return User(
        user_id=row["user_id"],
        username=row["username"],
        is_admin=row["is_admin"],
        token_version=row["token_version"],
        groups=row["groups"],
    )


def _verify(hashed: str, password: str) -> bool:
    try:
        return _hasher.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _hash_of_nothing() -> str:
    """What the password of an account that does not exist is compared with."""
    return _hasher.hash("")
