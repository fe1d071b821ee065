"""How a lease ends. A lease is the right of one manager, or worker service, to claim tasks of one task group.

It is named by its *epoch*, a number from one sequence, and goes OFFERED → ACTIVE → ENDING → ENDED
(``lifecycle.LEASE``). PostgreSQL is the authority: a host is lost only when ``alive_until`` has passed
*here*, and the tasks of an epoch become ready again only in the transaction that ends it. Such a
transaction locks the lease first and scans in a later statement, so that a claim in flight is either
found by the scan or refused (protocol P1).

Functions here run in the caller's transaction.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.errors import Unavailable
from mitosis.contracts.lifecycle import LeaseState, TaskGroupState
from mitosis.contracts.outcome import (
    LOST_AGAIN,
    LOST_ALONE,
    LOST_LIMIT,
    LOST_ONCE,
    POISON,
    SERVICE_LOST_AGAIN,
    SERVICE_LOST_ONCE,
    SERVICE_POISON,
)
from mitosis.contracts.wire import LeaseStanding
from mitosis.store.leases.switching import record_end
from mitosis.store.missing import require_task_group
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load

SQL = load("leases/ending.sql")

STANDING: Mapping[LeaseState, LeaseStanding] = {
    LeaseState.ACTIVE: LeaseStanding.ACTIVE,
    LeaseState.ENDING: LeaseStanding.ENDING,
    LeaseState.ENDED: LeaseStanding.GONE,
    LeaseState.OFFERED: LeaseStanding.GONE,
}
"""The standing of a lease in answers to the agent; an offer that was not taken grants nothing."""

LOCK_ATTEMPTS = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LockedLease:
    """A lease whose row the transaction holds FOR UPDATE."""

    epoch: int
    state: LeaseState
    group_number: int
    manager_number: int
    draining: bool
    """Nothing is claimed under it any more: its host is drained, or goes to another group."""
    alive_in_seconds: float | None
    """Until ``alive_until``; None while it is offered."""

    @property
    def claimant(self) -> int:
        """Return the number that stays with a task which is requeued without a report."""
        return self.manager_number


@dataclass(frozen=True, slots=True)
class LockedServiceLease:
    """A lease of a worker service whose row the transaction holds FOR UPDATE (P10)."""

    epoch: int
    group_number: int
    service_number: int

    @property
    def claimant(self) -> int:
        """Return the number that stays with a task which is requeued without a report."""
        return self.service_number


@dataclass(frozen=True, slots=True)
class _Losses:
    """What the failures of attempts say whose holder was lost."""

    once: str
    again: str
    poison: str


_OF_HOST = _Losses(LOST_ONCE, LOST_AGAIN, POISON)
_OF_SERVICE = _Losses(SERVICE_LOST_ONCE, SERVICE_LOST_AGAIN, SERVICE_POISON)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedGroup:
    """A task group whose live row the transaction holds FOR UPDATE."""

    number: int
    uuid: UUID
    state: TaskGroupState
    discarding: bool
    unfinished: int


@dataclass(frozen=True, slots=True)
class _Number:
    id: int


@dataclass(frozen=True, slots=True)
class _Epoch:
    epoch: int


@dataclass(frozen=True, slots=True)
class _Group:
    uuid: UUID | None
    """None: it has been deleted."""


@dataclass(frozen=True, slots=True)
class _Requeued:
    requeued: int
    poisoned: int


async def lock_lease(connection: Connection, manager_id: UUID, epoch: int) -> LockedLease | None:
    """Lock one lease of a manager; return None if the manager has no such lease."""
    parameters = {"manager": manager_id, "epoch": epoch}
    return await fetch_one(connection, LockedLease, SQL["lock_lease"], parameters)


async def lock_live_lease(connection: Connection, manager_number: int) -> LockedLease | None:
    """Lock the lease of the manager that has not ended; return None if there is none."""
    parameters = {"manager_number": manager_number}
    return await fetch_one(connection, LockedLease, SQL["lock_live_lease"], parameters)


async def lock_group(connection: Connection, group_number: int) -> LockedGroup:
    """Lock the live row of a group; the caller holds the leases it needs.

    Raises:
        NotFound: there is no such group.
    """
    parameters = {"group_number": group_number}
    return require_task_group(
        await fetch_one(connection, LockedGroup, SQL["lock_group"], parameters)
    )


async def lock_group_and_leases(connection: Connection, task_group_id: UUID) -> LockedGroup:
    """Lock all live leases of a group, then its live row, and check that no lease came in between.

    A lease is written under a share of the group's row, so none comes after this. One that came
    between the two locks must not be locked now (order): all locks are released and taken again.

    Raises:
        NotFound: there is no such group.
        Unavailable: leases kept coming.
    """
    found = require_task_group(
        await fetch_one(connection, _Number, SQL["group_number"], {"group": task_group_id}),
        task_group_id,
    )
    number = {"group_number": found.id}
    for _ in range(LOCK_ATTEMPTS):
        await connection.execute("SAVEPOINT locks")
        locked = await fetch_all(connection, _Epoch, SQL["lock_leases_of_group"], number)
        group = await lock_group(connection, found.id)
        live = await fetch_all(connection, _Epoch, SQL["live_epochs_of_group"], number)
        if set(live) <= set(locked):
            await connection.execute("RELEASE SAVEPOINT locks")
            return group
        await connection.execute("ROLLBACK TO SAVEPOINT locks")
    raise Unavailable("the task group is changing; try again")


async def end_lease(
    connection: Connection,
    lease: LockedLease | LockedServiceLease,
    reason: ReleaseReason,
    *,
    charge: bool = False,
    begun: Collection[AttemptKey] = (),
    workflow: bool = True,
) -> int:
    """End a locked lease, requeue its tasks and return how many.

    Args:
        connection: of the caller's transaction.
        lease: locked.
        reason: recorded with the lease.
        charge: the ending was not planned: each started task has lost a host once more, and the next
            start of every other task is announced (protocol P5).
        begun: attempts that the agent knows as started and not ended.
        workflow: poke that of the host; False if it is the caller and looks again afterwards.
            A worker service has none.
    """
    await lock_group(connection, lease.group_number)
    losses = _OF_HOST if isinstance(lease, LockedLease) else _OF_SERVICE
    parameters = {
        "epoch": lease.epoch,
        "group_number": lease.group_number,
        "manager_number": lease.manager_number if isinstance(lease, LockedLease) else None,
        "claimant": lease.claimant,
        "reason": reason.value,
        "charge": charge,
        "begun_ids": number_array(key.task_id for key in begun),
        "begun_attempts": number_array(key.attempt for key in begun),
        "workflow": workflow,
        "lost_limit": LOST_LIMIT,
        "alone_at": LOST_ALONE,
        "lost_once": losses.once,
        "lost_again": losses.again,
        "poison": losses.poison,
    }
    row = await fetch_one(connection, _Requeued, SQL["end_lease"], parameters)
    await record_end(connection, lease.epoch)
    if row is not None and row.poisoned:
        log.warning(
            "task.given_up",
            extra={"epoch": lease.epoch, "tasks": row.poisoned, "reason": losses.poison},
        )
    return 0 if row is None else row.requeued


async def end_leases_of_group(
    connection: Connection, group_number: int, *, workflow: bool = True
) -> None:
    """Withdraw the offers of a group that ends, start to end its other leases, and poke its hosts.

    ``workflow``: poke that of the group, too; False if it is the caller.
    """
    parameters = {
        "group_number": group_number,
        "reason": ReleaseReason.GROUP_ENDED.value,
        "workflow": workflow,
    }
    await connection.execute(SQL["end_leases_of_group"], parameters)


async def lose_manager(connection: Connection, manager_number: int) -> None:
    """Record that a host is lost: the manager is OFFLINE and owes the teardown of its environments."""
    await owe_environments(connection, manager_number)
    await set_offline(connection, manager_number)


async def owe_environments(connection: Connection, manager_number: int) -> None:
    """Record that the host must tear down everything it has: first thing after its next hello."""
    await _change_environments(connection, SQL["owe_environments"], manager_number)


async def owe_begun_teardowns(connection: Connection, manager_number: int) -> None:
    """Record that a teardown which a process of the agent has begun must be finished by the next one."""
    await _change_environments(connection, SQL["owe_begun_teardowns"], manager_number)


async def set_offline(connection: Connection, manager_number: int) -> None:
    """Record that no agent of this manager runs; poke the groups that waited for what it owes."""
    await _change_environments(connection, SQL["set_offline"], manager_number)


async def forget_environments(connection: Connection, manager_number: int) -> None:
    """Record that the manager is on another machine now: the old one was never cleaned."""
    await _change_environments(connection, SQL["forget_environments"], manager_number)


async def _change_environments(
    connection: Connection, statement: LiteralString, manager_number: int
) -> None:
    """Execute one change of the manager's environments, and poke their groups: they may settle now."""
    parameters = {"manager_number": manager_number}
    groups = await fetch_all(connection, _Group, statement, parameters)
    await poke(connection, groups=[group.uuid for group in groups if group.uuid is not None])
