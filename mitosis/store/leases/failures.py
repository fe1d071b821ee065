"""Remembers what a host failed at for a task group; the assignment round reads it (protocol P7).

All functions but the last verb of a user run in the caller's transaction, which holds the lease or the live
row of the group.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.host_failures import PAUSES, HostFailureKind
from mitosis.store.leases.doubt import release_doubted
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/failures.sql")
APART_SECONDS = 60.0
"""An offer that is missed so long after the last pause begins a new count."""


@dataclass(frozen=True, slots=True)
class _Lifted:
    name: str


async def lift_failures(
    store: Store,
    manager_id: UUID,
    task_group_id: UUID | None,
    kinds: Collection[HostFailureKind],
) -> Sequence[str]:
    """Try a host again for a task group (None: for all); return the names of those it had failed for."""
    values = {
        "manager": manager_id,
        "group": task_group_id,
        "kinds": [kind.value for kind in kinds],
    }
    async with store.database.transaction() as connection:
        if HostFailureKind.QUARANTINED in kinds:
            await release_doubted(connection, manager_id, task_group_id)
        lifted = await fetch_all(connection, _Lifted, SQL["lift"], values)
        await poke(connection, groups=[task_group_id] if task_group_id else [], scheduler=True)
    return [row.name for row in lifted]


async def record_failure(
    connection: Connection,
    manager_number: int,
    group_number: int,
    kind: HostFailureKind,
    reason: str,
) -> None:
    """Record that the host failed for the group once more; it is not offered there before ``next_at``.

    ``reason``: for people, such as ``exit code 3``.
    """
    pause = PAUSES[kind]
    values = {
        "manager_number": manager_number,
        "group_number": group_number,
        "kind": kind.value,
        "reason": reason.replace("\0", "\N{SYMBOL FOR NULL}"),
        "first": pause.first_seconds if pause else None,
        "longest": pause.longest_seconds if pause else None,
    }
    if kind is HostFailureKind.UNREACHABLE:
        await connection.execute(SQL["reached_since"], values | {"apart": APART_SECONDS})
    await connection.execute(SQL["record"], values)


async def forget_failures(
    connection: Connection,
    manager_number: int,
    group_number: int | None,
    kinds: Collection[HostFailureKind] = tuple(HostFailureKind),
) -> int:
    """Forget failures of a host for one group, or for all (None); return how many there were."""
    values = {
        "manager_number": manager_number,
        "group_number": group_number,
        "kinds": [kind.value for kind in kinds],
    }
    return (await connection.execute(SQL["forget"], values)).rowcount
