"""Frees or cancels tasks when the tasks have ended on which they depend (protocol P14).

A trigger notes each end of a task that others wait for, and notifies. Any process may resolve
the children, at any time and any number of times: what is resolved is gone from ``task_parents``.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from mitosis.contracts.errors import MitosisError
from mitosis.store.pg.database import (
    AS_USUAL,
    BY_INDEX,
    PLANNED_ONCE,
    WITHOUT_LOOPS,
    Connection,
)
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("dependencies/resolve.sql")
log = logging.getLogger(__name__)
MOST_EDGES = 5_000
"""So many are resolved by one transaction."""


@dataclass(frozen=True, slots=True)
class _Due:
    due: bool


@dataclass(frozen=True, slots=True)
class _Group:
    child_group_id: int


async def resolve_all(store: Store) -> Sequence[int]:
    """Resolve the children of all parents that have ended; return the task groups to try again."""
    async with store.database.connection() as connection:
        groups = await fetch_all(connection, _Group, SQL["due_groups"], {})
    return await resolve_groups(store, [group.child_group_id for group in groups])


async def resolve_groups(store: Store, groups: Sequence[int]) -> Sequence[int]:
    """Resolve the children in each of these task groups; return those to try again.

    One that is locked for long holds up no other.
    """
    failed = []
    for number in groups:
        try:
            await resolve_group(store, number)
        except MitosisError as error:
            log.warning(
                "dependencies.not_resolved",
                extra={"group_number": number, "reason": error.message},
            )
            failed.append(number)
    return failed


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
    await connection.execute(AS_USUAL)
