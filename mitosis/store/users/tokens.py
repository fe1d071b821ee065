"""Who has valid tokens, how the tokens of one holder end, and which held calls have to end with them.

A token is valid while it has not expired and carries the token version of its holder. Tokens are not stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mitosis.contracts.account_http import HolderKind, RevokedTokens, TokenHolder
from mitosis.contracts.accounts import Role
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import Page
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("users/tokens.sql")
MAX_PAGE = 500
ISSUED = {"user": "issued_user", "manager": "issued_manager", "worker": "issued_worker"}
REVOKE = {"user": "revoke_user", "manager": "revoke_manager", "worker": "revoke_worker"}


@dataclass(frozen=True, slots=True)
class HeldToken:
    """What a call that goes on for long began with."""

    kind: HolderKind
    id: UUID
    token_version: int
    task_group_id: UUID | None
    """The task group that it reads, if it reads one."""
    role: Role | None
    """The role of the user there."""


@dataclass(frozen=True, slots=True)
class _Version:
    token_version: int


@dataclass(frozen=True, slots=True)
class _Place:
    place: int


async def record_issue(
    store: Store, kind: HolderKind, holder: UUID, version: int, expires_at: datetime
) -> None:
    """Record until when a new token is valid."""
    values = {"id": holder, "version": version, "expires_at": expires_at}
    async with store.database.connection() as connection:
        await connection.execute(SQL[ISSUED[kind]], values)


async def revoke_tokens(store: Store, kind: HolderKind, holder: UUID) -> RevokedTokens:
    """End all tokens of a user, host or worker service: at once here, within 5 s in other processes.

    Raises:
        NotFound: there is no such holder.
    """
    async with store.database.connection() as connection:
        row = await fetch_one(connection, _Version, SQL[REVOKE[kind]], {"id": holder})
    if row is None:
        raise NotFound(f"there is no such {kind}", id=holder)
    forget_versions(store)
    return RevokedTokens(kind=kind, id=holder, token_version=row.token_version)


def forget_versions(store: Store) -> None:
    """Read accounts and token versions again at the next call."""
    for cached in (store.users, store.manager_token_versions, store.worker_token_versions):
        cached.clear()


async def list_holders(
    store: Store, viewer_id: UUID, *, after: str | None = None, limit: int = 100
) -> Page[TokenHolder]:
    """Return those with valid tokens that the viewer may revoke, by kind and name."""
    size = page_limit(limit, MAX_PAGE)
    kind, name, key = decode_cursor("tokens", after, str, str, str) if after else ("", "", "")
    values = {
        "viewer": viewer_id,
        "after_kind": kind,
        "after_name": name,
        "after_id": key,
        "limit": size + 1,
    }
    async with store.database.connection() as connection:
        found = await fetch_all(connection, TokenHolder, SQL["holders"], values)
    cursor = None
    if len(found) > size:
        last = found[size - 1]
        cursor = encode_cursor("tokens", last.kind, last.name, str(last.id))
    return Page(items=found[:size], next=cursor)


async def no_longer_valid(store: Store, held: Sequence[HeldToken]) -> list[int]:
    """Return the places in ``held`` of calls whose token was revoked or whose role has changed.

    It is one statement for any number of calls.
    """
    values = {
        "kinds": [one.kind for one in held],
        "ids": [one.id for one in held],
        "versions": [one.token_version for one in held],
        "groups": [one.task_group_id for one in held],
        "roles": [one.role for one in held],
    }
    async with store.database.connection() as connection:
        rows = await fetch_all(connection, _Place, SQL["no_longer_valid"], values)
    return [row.place - 1 for row in rows]
