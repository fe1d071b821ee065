"""How a lease ends. A lease is the right of one manager to claim tasks of one group.

It is named by its *epoch*, a number from one sequence, and lives OFFERED → ACTIVE → ENDING → ENDED
(``lifecycle.LEASE``). PostgreSQL is the authority: nobody counts as lost before ``alive_until`` has
passed *here*, and what an epoch holds goes back to ready only in the transaction that ends it. Such a
transaction locks the lease first and scans in a later statement, so that a claim in flight is either
seen by the scan or refused (protocol P1).

Functions here run in the caller's transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import DictRow

from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.errors import NotFound, Unavailable
from mitosis.contracts.outcome import LOST_LIMIT
from mitosis.contracts.wire import LeaseStanding
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.statements import load

SQL = load("leases/ending.sql")

STANDING: Mapping[str, LeaseStanding] = {
    "active": LeaseStanding.ACTIVE,
    "ending": LeaseStanding.ENDING,
    "ended": LeaseStanding.GONE,
    "offered": LeaseStanding.GONE,
}
"""Lease state → what its holder is told; an offer that was not taken gives no right."""

LOCK_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class LockedLease:
    """A lease whose row the transaction holds FOR UPDATE."""

    epoch: int
    state: str
    group_number: int
    manager_number: int
    alive_in_seconds: float | None


async def lock_lease(connection: Connection, manager_id: UUID, epoch: int) -> LockedLease | None:
    """Lock one lease of a manager; None = it has no such lease."""
    cursor = await connection.execute(SQL["lock_lease"], {"manager": manager_id, "epoch": epoch})
    return _locked(await cursor.fetchone())


async def lock_live_lease(connection: Connection, manager_number: int) -> LockedLease | None:
    """Lock the manager's lease that has not ended, if it has one."""
    cursor = await connection.execute(SQL["lock_live_lease"], {"manager_number": manager_number})
    return _locked(await cursor.fetchone())


async def lock_group(connection: Connection, group_number: int) -> DictRow:
    """Lock the group's live row; the caller holds the leases it needs."""
    cursor = await connection.execute(SQL["lock_group"], {"group_number": group_number})
    row = await cursor.fetchone()
    if row is None:
        raise NotFound("no such task group")
    return row


async def lock_group_and_leases(connection: Connection, task_group_id: UUID) -> DictRow:
    """Lock all live leases of a group, then its live row, and make sure no lease came in between.

    A lease is written under a share of the group's row, so none comes after this. One that came
    between the two locks must not be locked now (order): everything is given back and tried again.

    Raises:
        NotFound: no such group.
        Unavailable: leases kept coming.
    """
    cursor = await connection.execute(SQL["group_number"], {"group": task_group_id})
    found = await cursor.fetchone()
    if found is None:
        raise NotFound("no such task group", task_group_id=str(task_group_id))
    number = {"group_number": found["id"]}
    for _ in range(LOCK_ATTEMPTS):
        await connection.execute("SAVEPOINT locks")
        cursor = await connection.execute(SQL["lock_leases_of_group"], number)
        locked = {row["epoch"] for row in await cursor.fetchall()}
        group = await lock_group(connection, found["id"])
        cursor = await connection.execute(SQL["live_epochs_of_group"], number)
        if {row["epoch"] for row in await cursor.fetchall()} <= locked:
            await connection.execute("RELEASE SAVEPOINT locks")
            return group
        await connection.execute("ROLLBACK TO SAVEPOINT locks")
    raise Unavailable("the task group is changing; try again")


async def end_lease(
    connection: Connection, lease: LockedLease, reason: ReleaseReason, *, charge: bool = False
) -> int:
    """End a locked lease and requeue what it holds; gives how many tasks.

    ``charge``: the host was lost, so started tasks have lost a host once more.
    """
    await lock_group(connection, lease.group_number)
    cursor = await connection.execute(
        SQL["end_lease"],
        {
            "epoch": lease.epoch,
            "group_number": lease.group_number,
            "manager_number": lease.manager_number,
            "reason": reason.value,
            "charge": charge,
            "lost_limit": LOST_LIMIT,
        },
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row["requeued"])


async def end_leases_of_group(connection: Connection, group_number: int, reason: str) -> None:
    """Withdraw the offers of a group, begin to end its other leases, tell everybody concerned."""
    await connection.execute(
        SQL["end_leases_of_group"], {"group_number": group_number, "reason": reason}
    )


async def lose_manager(connection: Connection, manager_number: int) -> None:
    """The host is lost: OFFLINE, and it owes the teardown of what it has."""
    parameters = {"manager_number": manager_number}
    cursor = await connection.execute(SQL["lose_environments"], parameters)
    groups: Sequence[UUID] = [row["uuid"] for row in await cursor.fetchall()]
    await connection.execute(SQL["set_offline"], parameters)
    await poke(connection, groups=groups)


def _locked(row: DictRow | None) -> LockedLease | None:
    if row is None:
        return None
    return LockedLease(
        epoch=row["epoch"],
        state=row["state"],
        group_number=row["group_id"],
        manager_number=row["manager_id"],
        alive_in_seconds=row["alive_in_seconds"],
    )
