"""Frees or cancels tasks when the tasks have ended on which they depend (protocol P14).

A trigger notes each end of a task that others wait for, and notifies. Any process may resolve
the children, at any time and any number of times: what is resolved is gone from ``task_parents``.
"""

from dataclasses import dataclass
from typing import LiteralString

from mitosis.store.pg.database import PLANNED_ONCE, WITHOUT_LOOPS, Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("dependencies/resolve.sql")
MOST_EDGES = 5_000
"""So many are resolved by one transaction."""
BY_INDEX: LiteralString = "SET LOCAL enable_seqscan = off"
"""The tables may have been empty when the statement was planned."""


@dataclass(frozen=True, slots=True)
class _Due:
    due: bool


@dataclass(frozen=True, slots=True)
class _Group:
    child_group_id: int


async def resolve_all(store: Store) -> None:
    """Resolve the children of all parents that have ended."""
    async with store.database.connection() as connection:
        groups = await fetch_all(connection, _Group, SQL["due_groups"], {})
    for group in groups:
        await resolve_group(store, group.child_group_id)


async def resolve_group(store: Store, group_number: int) -> None:
    """Resolve all children in one task group, in transactions of up to :data:`MOST_EDGES` edges."""
    values = {"group_number": group_number}
    while True:
        async with store.database.connection() as connection:
            looked = await fetch_one(connection, _Due, SQL["is_due"], values)
        if looked is None or not looked.due:
            return
        async with store.database.transaction() as connection:
            locked = await connection.execute(SQL["lock_group"], values)
            if await locked.fetchone() is None:
                return  # it is deleted, with what waits in it
            await resolve_some(connection, group_number)


async def resolve_some(connection: Connection, group_number: int, most: int = MOST_EDGES) -> None:
    """Resolve up to so many edges in the caller's transaction, which holds the group.

    It is planned once per connection, without loops and by index: a plan for few edges takes seconds
    for many.
    """
    values = {"group_number": group_number, "limit": most}
    for setting in (WITHOUT_LOOPS, BY_INDEX, PLANNED_ONCE):
        await connection.execute(setting, prepare=True)
    await connection.execute(SQL["resolve"], values, prepare=True)
