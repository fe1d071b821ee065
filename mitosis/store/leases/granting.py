"""The host's side of a lease: taking an offer, and the data to run it (protocol P6)."""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.agent_http import LeaseGrant, ManagerTaskGroup
from mitosis.contracts.errors import LeaseLost
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import LeaseState
from mitosis.store.leases.ending import lock_lease
from mitosis.store.leases.failures import forget_failures
from mitosis.store.leases.lease_terms import affinity_seconds
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import notify_watchers
from mitosis.store.store import Store

SQL = load("leases/granting.sql")


@dataclass(frozen=True, slots=True)
class _Epoch:
    epoch: int


@dataclass(frozen=True, slots=True)
class TakenLease:
    """The lease that a manager has taken and that has not ended."""

    epoch: int
    state: LeaseState
    task_group_id: UUID


async def take_lease(store: Store, manager_id: UUID, epoch: int) -> LeaseGrant:
    """Take an offer: OFFERED → ACTIVE. A lease that is ACTIVE already is success.

    Raises:
        LeaseLost: the offer was withdrawn, is ending or belongs to another manager.
    """
    async with store.database.transaction() as connection:
        lease = await lock_lease(connection, manager_id, epoch)
        if lease is None or lease.state not in (LeaseState.OFFERED, LeaseState.ACTIVE):
            raise LeaseLost(epoch=epoch)
        numbers = (lease.group_number, lease.manager_number)
        affinity = await affinity_seconds(connection, store, *numbers)
        values = {**_parameters(store, manager_id, epoch), "affinity": affinity}
        await connection.execute(SQL["take"], values)
        await forget_failures(
            connection, lease.manager_number, None, (HostFailureKind.UNREACHABLE,)
        )
        await notify_watchers(connection, lease.group_number)
        return await _running_grant(connection, store, manager_id, epoch)


async def get_grant(store: Store, manager_id: UUID, epoch: int) -> LeaseGrant:
    """Return what the agent needs to run an ACTIVE or ENDING lease.

    Raises:
        LeaseLost: the manager has no such lease.
    """
    async with store.database.connection() as connection:
        return await _running_grant(connection, store, manager_id, epoch)


async def task_group_of_manager(store: Store, manager_id: UUID) -> ManagerTaskGroup | None:
    """Return the task group of the lease that the manager holds or is offered; None without a lease."""
    async with store.database.connection() as connection:
        live = await fetch_one(connection, _Epoch, SQL["live_epoch"], {"manager": manager_id})
        if live is None:
            return None
        parameters = _parameters(store, manager_id, live.epoch)
        group = await fetch_one(connection, ManagerTaskGroup, SQL["grant"], parameters)
    return None if group is None or group.lease_state is LeaseState.ENDED else group


async def extend_leases(
    connection: Connection, manager_number: int, host_lost_after_seconds: float
) -> TakenLease | None:
    """Move ``alive_until`` of the manager's lease after a contact; return the lease if it holds one.

    A group's own limit comes first.
    """
    parameters = {"manager_number": manager_number, "host_lost_after": host_lost_after_seconds}
    return await fetch_one(connection, TakenLease, SQL["stay_alive"], parameters)


async def _running_grant(
    connection: Connection, store: Store, manager_id: UUID, epoch: int
) -> LeaseGrant:
    parameters = _parameters(store, manager_id, epoch)
    grant = await fetch_one(connection, LeaseGrant, SQL["grant"], parameters)
    if grant is None or grant.lease_state not in (LeaseState.ACTIVE, LeaseState.ENDING):
        raise LeaseLost(epoch=epoch)
    return grant


def _parameters(store: Store, manager_id: UUID, epoch: int) -> dict[str, object]:
    return {
        "manager": manager_id,
        "epoch": epoch,
        "host_lost_after": store.host_lost_after.total_seconds(),
    }
