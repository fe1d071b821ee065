"""The first and the last call of an agent process (protocol P5): hello and goodbye.

Lock order in both: the manager, its live lease, the lease's group, task rows, environments.
"""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.agent_http import HeldLease, Hello, HelloAnswer
from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.errors import ManagerIdInUse, NotFound, Superseded
from mitosis.contracts.lifecycle import TASK_GROUP, LeaseState
from mitosis.contracts.temporal_names import NAMESPACE, host_task_queue
from mitosis.store.leases.ending import (
    LockedLease,
    end_lease,
    forget_environments,
    lock_group,
    lock_live_lease,
    owe_begun_teardowns,
    owe_environments,
    set_offline,
)
from mitosis.store.leases.granting import extend_leases
from mitosis.store.leases.lease_terms import affinity_seconds
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("managers/hello.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedManager:
    """A manager whose row the transaction holds FOR NO KEY UPDATE."""

    id: int
    uuid: UUID
    name: str
    incarnation: int
    machine_id: str | None
    boot_id: str | None
    host_name: str | None
    draining: bool
    offline: bool
    silent_seconds: float
    """Infinite if it has never been in contact."""

    def is_elsewhere(self, hello: Hello) -> bool:
        """Return whether the hello comes from another machine than the one before it."""
        return self.machine_id not in (None, hello.machine_id)


@dataclass(frozen=True, slots=True)
class _Held:
    epoch: int
    task_group_id: UUID
    host_lost_after_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Group:
    uuid: UUID


@dataclass(frozen=True, slots=True)
class _Epoch:
    epoch: int


async def say_hello(
    store: Store, manager_id: UUID, hello: Hello, *, namespace: str = NAMESPACE
) -> HelloAnswer:
    """Record the start of an agent process. Idempotent for one incarnation.

    Raises:
        NotFound: there is no such manager.
        Superseded: a later process has said hello.
        ManagerIdInUse: another machine that is still in contact uses this id.
    """
    host_lost_after = store.host_lost_after.total_seconds()
    async with store.database.transaction() as connection:
        manager = await lock_manager(connection, manager_id)
        lease = await lock_live_lease(connection, manager.id)
        incarnation = _incarnation_after(manager, lease, hello, host_lost_after)
        if incarnation > manager.incarnation:
            await _begin_process(connection, store, manager, lease, hello)
            await _save(connection, manager, hello, incarnation)
        await owe_begun_teardowns(connection, manager.id)
        number = {"manager_number": manager.id, "host_lost_after": host_lost_after}
        await connection.execute(SQL["set_online"], number)
        await extend_leases(connection, manager.id, host_lost_after)
        await poke(connection, managers=[manager_id], scheduler=True)
        held = await fetch_one(connection, _Held, SQL["held"], number)
        owed = await fetch_all(connection, _Group, SQL["owed"], number)
    own = None if held is None else held.host_lost_after_seconds
    lease_held = None
    if held is not None:
        lease_held = HeldLease(epoch=held.epoch, task_group_id=held.task_group_id)
    return HelloAnswer(
        manager_id=manager.uuid,
        name=manager.name,
        incarnation=incarnation,
        temporal_namespace=namespace,
        temporal_task_queue=host_task_queue(manager.uuid),
        lease=lease_held,
        owed=tuple(group.uuid for group in owed),
        host_lost_after_seconds=own or host_lost_after,
    )


async def say_goodbye(
    store: Store, manager_id: UUID, epoch: int | None, incarnation: int | None = None
) -> None:
    """Record the orderly end of an agent process: release its lease, set the manager OFFLINE. Idempotent.

    Raises:
        NotFound: there is no such manager.
    """
    async with store.database.transaction() as connection:
        manager = await lock_manager(connection, manager_id)
        if incarnation is not None and incarnation < manager.incarnation:
            return  # its successor has said hello
        lease = await lock_live_lease(connection, manager.id)
        if epoch is not None and lease is not None and lease.epoch != epoch:
            return  # a late goodbye must not end the epoch of a successor
        if lease is not None:
            await end_lease(connection, lease, ReleaseReason.GOODBYE)
        await set_offline(connection, manager.id)
        await poke(connection, managers=[manager_id])


async def lock_manager(connection: Connection, manager_id: UUID) -> LockedManager:
    """Lock the row of a manager.

    Raises:
        NotFound: there is no such manager.
    """
    parameters = {"manager": manager_id}
    manager = await fetch_one(connection, LockedManager, SQL["lock_manager"], parameters)
    if manager is None:
        raise NotFound("no such manager", manager_id=str(manager_id))
    return manager


def _incarnation_after(
    manager: LockedManager, lease: LockedLease | None, hello: Hello, host_lost_after: float
) -> int:
    """Return the incarnation after this hello. The stored one is a repeated hello of the same process.

    Raises:
        Superseded, ManagerIdInUse: this process must not run.
    """
    stored, elsewhere = manager.incarnation, manager.is_elsewhere(hello)
    if elsewhere and hello.take_over:
        return max(stored + 1, hello.incarnation)
    if elsewhere and _in_contact(manager, lease, host_lost_after):
        raise ManagerIdInUse(
            "another machine that is still in contact uses this manager id; stop it, or take over",
            host_name=manager.host_name,
        )
    if hello.incarnation < stored or (elsewhere and hello.incarnation == stored):
        if hello.take_over:
            return stored + 1
        raise Superseded(incarnation=stored)
    return hello.incarnation


def _in_contact(manager: LockedManager, lease: LockedLease | None, host_lost_after: float) -> bool:
    if lease is not None and lease.alive_in_seconds is not None and lease.alive_in_seconds > 0:
        return True
    return not manager.offline and manager.silent_seconds < host_lost_after


async def _begin_process(
    connection: Connection,
    store: Store,
    manager: LockedManager,
    lease: LockedLease | None,
    hello: Hello,
) -> None:
    """End the lease of the process before, and give a new epoch if there is use for one.

    An ACTIVE lease gets one if its group has not ended and the host is not drained. So does a lease with
    journalled attempts, whose rows move to it: under a dead epoch they would be stranded if this host died
    before its replay.

    An ending that was not planned is charged to the tasks that had started (P5).
    """
    elsewhere = manager.is_elsewhere(hello)
    rebooted = elsewhere or manager.boot_id not in (None, hello.boot_id)
    if lease is not None:
        group = await lock_group(connection, lease.group_number)
        epoch = await _new_epoch(connection)
        moved = await _move_journalled(connection, lease, epoch, hello)
        planned = not elsewhere and hello.planned_stop == manager.incarnation
        await end_lease(
            connection,
            lease,
            ReleaseReason.NEW_INCARNATION,
            charge=not planned,
            begun=hello.begun.keys(),
        )
        goes_on = group.state not in TASK_GROUP.terminal and not group.discarding
        goes_on = goes_on and lease.state is LeaseState.ACTIVE
        goes_on = goes_on and not (manager.draining or lease.draining)
        if goes_on or moved:
            values = {
                "manager_number": manager.id,
                "group_number": lease.group_number,
                "epoch": epoch,
                "state": (LeaseState.ACTIVE if goes_on else LeaseState.ENDING).value,
                "host_lost_after": store.host_lost_after.total_seconds(),
                "affinity": await affinity_seconds(connection, store, group.number, manager.id),
            }
            await connection.execute(SQL["insert_lease"], values)
    if elsewhere:
        await forget_environments(connection, manager.id)
    elif rebooted:
        await owe_environments(connection, manager.id)


async def _new_epoch(connection: Connection) -> int:
    (found,) = await fetch_all(connection, _Epoch, SQL["new_epoch"], {})
    return found.epoch


async def _move_journalled(
    connection: Connection, lease: LockedLease, epoch: int, hello: Hello
) -> int:
    """Move the rows of the attempts in the agent's journal to the new epoch; return how many (P5)."""
    keys = hello.journal.keys()
    if not keys or lease.state is LeaseState.OFFERED:
        return 0
    parameters = {
        "old_epoch": lease.epoch,
        "new_epoch": epoch,
        "group_number": lease.group_number,
        "ids": number_array(key.task_id for key in keys),
        "attempts": number_array(key.attempt for key in keys),
    }
    return (await connection.execute(SQL["move_journalled"], parameters)).rowcount


async def _save(
    connection: Connection, manager: LockedManager, hello: Hello, incarnation: int
) -> None:
    await connection.execute(
        SQL["save_hello"],
        {
            **hello.model_dump(
                exclude={"incarnation", "cores", "take_over", "journal", "planned_stop", "begun"}
            ),
            "manager_number": manager.id,
            "cores": list(hello.cores),
            "incarnation": incarnation,
        },
    )
