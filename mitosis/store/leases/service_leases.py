"""The leases of worker services: their end with a registration, and what a process is to stop (protocol P10).

Functions that take a connection run in the caller's transaction.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from uuid import UUID

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.ids import parse_task_uuid, task_uuid
from mitosis.contracts.worker_services import HeldTask, StopTask
from mitosis.store.leases.ending import LockedServiceLease, end_lease, lock_group
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load

SQL = load("leases/service_leases.sql")


@dataclass(frozen=True, slots=True)
class _NextLease:
    epoch: int
    state: str
    worker_uuid: UUID


@dataclass(frozen=True, slots=True)
class _Epoch:
    epoch: int


@dataclass(frozen=True, slots=True)
class _Stop:
    group: int
    id: int
    attempt: int
    superseded: bool
    grace_seconds: float
    reason: str


async def end_leases_of_services(
    connection: Connection,
    services: Collection[int],
    reason: ReleaseReason,
    *,
    charge: bool,
    unreported: Sequence[HeldTask] = (),
) -> None:
    """End all leases of services whose registrations the caller has ended; requeue what they hold.

    Args:
        connection: of the caller's transaction.
        services: their numbers.
        reason: recorded with the leases.
        charge: the end was not planned, so each task has lost a process once more (protocol P5).
        unreported: attempts whose end the next process has in its journal; they stay claimed.
    """
    parameters = {"services": number_array(services)}
    leases = await fetch_all(connection, LockedServiceLease, SQL["lock_leases"], parameters)
    for lease in sorted(leases, key=attrgetter("group_number", "epoch")):
        following = await _carry(connection, lease, unreported)
        await end_lease(connection, lease, reason, charge=charge)
        if following is not None:
            values = {
                "epoch": following.epoch,
                "group_number": lease.group_number,
                "worker": following.worker_uuid,
                "state": following.state,
            }
            await connection.execute(SQL["continue_lease"], values)


async def _carry(
    connection: Connection, lease: LockedServiceLease, unreported: Sequence[HeldTask]
) -> _NextLease | None:
    """Move the rows of these attempts to the epoch of the next lease; None if there are none."""
    numbers = [(*parse_task_uuid(one.task_id), one.attempt) for one in unreported]
    keys = [
        AttemptKey(task, attempt) for group, task, attempt in numbers if group == lease.group_number
    ]
    if not keys:
        return None
    await lock_group(connection, lease.group_number)
    values = {
        "epoch": lease.epoch,
        "group_number": lease.group_number,
        "ids": number_array(key.task_id for key in keys),
        "attempts": number_array(key.attempt for key in keys),
    }
    return await fetch_one(connection, _NextLease, SQL["carry"], values)


async def lease_of_group(
    connection: Connection, worker_uuid: UUID, group_number: int
) -> int | None:
    """Return the epoch of the last lease of a service in a group; None if it never had one."""
    parameters = {"worker": worker_uuid, "group_number": group_number}
    found = await fetch_one(connection, _Epoch, SQL["lease_of_group"], parameters)
    return None if found is None else found.epoch


async def to_stop(
    connection: Connection, worker_uuid: UUID, held: Sequence[HeldTask]
) -> tuple[StopTask, ...]:
    """Return which of these attempts a process of a worker service is to stop, and how."""
    if not held:
        return ()
    numbers = [parse_task_uuid(one.task_id) for one in held]
    values = {
        "worker": worker_uuid,
        "groups": number_array(group for group, _ in numbers),
        "ids": number_array(task for _, task in numbers),
        "attempts": number_array(one.attempt for one in held),
    }
    rows = await fetch_all(connection, _Stop, SQL["to_stop"], values)
    return tuple(
        StopTask(
            task_id=task_uuid(row.group, row.id),
            attempt=row.attempt,
            superseded=row.superseded,
            grace_seconds=row.grace_seconds,
            reason=row.reason,
        )
        for row in rows
    )
