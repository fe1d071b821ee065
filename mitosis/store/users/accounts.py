"""Users, user groups, roles, passwords. Tokens are the API's; only their version is kept here."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar
from uuid import UUID

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from psycopg.errors import UniqueViolation

from mitosis.contracts.account_http import USERNAME
from mitosis.contracts.accounts import Role, User
from mitosis.contracts.errors import AlreadyExists, InvalidRequest, NotFound, Unauthenticated
from mitosis.store.missing import require_task_group
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("users/accounts.sql")
_USERNAME = re.compile(USERNAME)
HASHER = PasswordHasher()
"""Argon2; a hash takes tens of milliseconds of a core."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Account:
    """The row of ``user``."""

    user_id: UUID
    username: str
    is_admin: bool
    token_version: int
    password_hash: str | None
    groups: dict[str, Role]

    def user(self) -> User:
        return User(self.user_id, self.username, self.is_admin, self.token_version, self.groups)


@dataclass(frozen=True, slots=True)
class _Created:
    user_id: UUID


@dataclass(frozen=True, slots=True)
class _Role:
    role: Role | None


@dataclass(frozen=True, slots=True)
class GroupRole:
    """A user group, and the role that a user has in it."""

    id: int
    name: str
    role: Role | None


async def ensure_admin(store: Store, username: str, password: str | None = None) -> User:
    """Return the admin account; create it at the first call. Safe in parallel processes.

    Raises:
        AlreadyExists: the user group of another account has this name.
    """
    row = await _account(store, username=username)
    if row is None:
        try:
            return await create_user(store, username, password, is_admin=True)
        except AlreadyExists:
            row = await _account(store, username=username)  # another process has created it
    if row is None:
        raise AlreadyExists(f"a user group is called {username} already", username=username)
    return row.user()


async def create_user(
    store: Store, username: str, password: str | None = None, *, is_admin: bool = False
) -> User:
    """Create an account and a user group of the same name in which it is admin.

    Raises:
        AlreadyExists: the name is taken by a user or a group.
        InvalidRequest: the name is not valid.
    """
    if not _USERNAME.fullmatch(username):
        raise InvalidRequest(
            "must be 1 to 100 letters, digits, dots, underscores and dashes, starting with a"
            " letter or digit",
            field="username",
        )
    hashed = None if password is None else await asyncio.to_thread(HASHER.hash, password)
    parameters = {"username": username, "password_hash": hashed, "is_admin": is_admin}
    try:
        made = await _fetch(store, _Created, "create", parameters)
    except UniqueViolation:
        made = None  # the group's name was taken between the check and the insert
    row = None if made is None else await _account(store, user_id=made.user_id)
    if row is None:
        raise AlreadyExists(f"the name {username} is taken", username=username)
    return row.user()


async def verify_password(store: Store, username: str, password: str) -> User:
    """Return the account if the password is right; take as long for an account that does not exist.

    Raises:
        Unauthenticated: no such account, it is locked, or the password is wrong.
    """
    row = await _account(store, username=username)
    known = None if row is None else row.password_hash
    async with store.hashing:
        hashed = known if known is not None else await asyncio.to_thread(_hash_of_nothing)
        right = await asyncio.to_thread(_verify, hashed, password)
    if row is None or known is None or not right:
        raise Unauthenticated("unknown user or wrong password", reason="login_failed")
    return row.user()


async def find_user(store: Store, user_id: UUID) -> User | None:
    """Return the active account; None if it does not exist, is locked or deleted. Cached for 5 s."""

    async def read() -> User | None:
        row = await _account(store, user_id=user_id)
        return None if row is None else row.user()

    return await store.users.get(user_id, read)


async def role_in_group(store: Store, user_id: UUID, group_name: str) -> Role | None:
    """Return the user's role in a user group; an administrator has ``admin`` everywhere.

    Raises:
        NotFound: no such user group.
    """
    parameters = {"user_id": user_id, "group_name": group_name}
    row = await _fetch(store, _Role, "role_in_group", parameters)
    if row is None:
        raise NotFound(f"there is no user group {group_name}", group_name=group_name)
    return row.role


async def role_in_task_group(store: Store, user_id: UUID, task_group_id: UUID) -> Role | None:
    """Return the user's role in the user group that owns a task group. A role is cached for 5 s.

    Raises:
        NotFound: no such task group.
    """

    async def read() -> Role | None:
        parameters = {"user_id": user_id, "task_group_id": task_group_id}
        row = await _fetch(store, _Role, "role_in_task_group", parameters)
        return require_task_group(row, task_group_id).role

    key = (user_id, task_group_id)
    return await store.roles.get(key, read, keep=lambda role: role is not None)


async def add_member(store: Store, group_name: str, username: str, role: Role) -> None:
    """Give a user a role in a user group; replaces the role they have.

    Raises:
        NotFound: no such group or user.
    """
    parameters = {"group_name": group_name, "username": username, "role": role}
    if await _fetch(store, _Created, "add_member", parameters) is None:
        raise NotFound(
            "there is no such user or user group", group_name=group_name, username=username
        )
    store.users.clear()
    store.roles.clear()


async def find_account(connection: Connection, user_id: UUID) -> User | None:
    """Return the active account as the caller's transaction sees it."""
    parameters = {"user_id": user_id, "username": None}
    row = await fetch_one(connection, _Account, SQL["user"], parameters)
    return None if row is None else row.user()


async def roles_in(
    connection: Connection, user_id: UUID, names: list[str]
) -> Mapping[str, GroupRole]:
    """Return those of the user groups that exist, by name, with the user's role in each."""
    parameters = {"user_id": user_id, "names": names}
    rows = await fetch_all(connection, GroupRole, SQL["roles_in"], parameters)
    return {row.name: row for row in rows}


async def _account(
    store: Store, *, user_id: UUID | None = None, username: str | None = None
) -> _Account | None:
    return await _fetch(store, _Account, "user", {"user_id": user_id, "username": username})


async def _fetch(
    store: Store, kind: type[T], statement: str, parameters: Mapping[str, object]
) -> T | None:
    async with store.database.connection() as connection:
        return await fetch_one(connection, kind, SQL[statement], parameters)


def _verify(hashed: str, password: str) -> bool:
    try:
        return HASHER.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _hash_of_nothing() -> str:
    """Return a hash to compare with when the account does not exist."""
    return HASHER.hash("")
