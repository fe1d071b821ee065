"""Lists, makes, locks and unlocks accounts, and sets passwords; each change ends the account's tokens."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.account_http import NewUser, UserInfo
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import Page
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.users.accounts import HASHER, add_member, create_user, roles_in
from mitosis.store.users.tokens import forget_versions

SQL = load("users/administration.sql")
MAX_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Changed:
    user_id: UUID


async def list_users(store: Store, *, after: str | None = None, limit: int = 100) -> Page[UserInfo]:
    """Return all accounts, by name."""
    size = page_limit(limit, MAX_PAGE)
    name = decode_cursor("users", after, str)[0] if after else ""
    found = await _page(store, after=name, limit=size + 1)
    cursor = encode_cursor("users", found[size - 1].username) if len(found) > size else None
    return Page(items=found[:size], next=cursor)


async def get_user_info(store: Store, username: str) -> UserInfo:
    """Return one account.

    Raises:
        NotFound: there is none.
    """
    found = await _page(store, username=username)
    if not found:
        raise missing_user(username)
    return found[0]


async def add_user(store: Store, spec: NewUser, creator: UUID) -> UserInfo:
    """Make an account with a user group of its own, and give it roles in others.

    Raises:
        AlreadyExists: a user or user group has the name.
        NotFound: there is no such user group; nothing is made.
    """
    async with store.database.connection() as connection:
        known = await roles_in(connection, creator, list(spec.groups))
    for name in spec.groups:
        if name not in known:
            raise NotFound(f"no such user group: {name}", field="groups")
    await create_user(store, spec.username, spec.password, is_admin=spec.is_admin)
    for name, role in spec.groups.items():
        await add_member(store, name, spec.username, role)
    return await get_user_info(store, spec.username)


async def set_password(store: Store, username: str, password: str) -> UserInfo:
    """Set a password; all tokens of the account end.

    Raises:
        NotFound: there is no such account.
    """
    async with store.hashing:
        hashed = await asyncio.to_thread(HASHER.hash, password)
    return await _change(store, "set_password", {"username": username, "password_hash": hashed})


async def set_locked(store: Store, username: str, *, locked: bool) -> UserInfo:
    """Lock an account, which ends its tokens, or unlock it.

    Raises:
        NotFound: there is no such account.
    """
    return await _change(store, "set_locked", {"username": username, "locked": locked})


def missing_user(username: str) -> NotFound:
    return NotFound(f"there is no user {username}", username=username)


async def _change(store: Store, statement: str, values: dict[str, object]) -> UserInfo:
    username = str(values["username"])
    async with store.database.connection() as connection:
        if await fetch_one(connection, _Changed, SQL[statement], values) is None:
            raise missing_user(username)
    forget_versions(store)
    return await get_user_info(store, username)


async def _page(
    store: Store, *, username: str | None = None, after: str = "", limit: int = 1
) -> list[UserInfo]:
    values = {"username": username, "after": after, "limit": limit}
    async with store.database.connection() as connection:
        return await fetch_all(connection, UserInfo, SQL["page"], values)
