"""Releasing leases on behalf of ManagerWorkflow or of the agent itself (protocol P1, P4, P8)."""

import logging
from uuid import UUID

from mitosis.contracts.control import ReleaseAnswer, ReleaseReason, ReleaseRequest, ReleaseStatus
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import TASK_GROUP, LeaseState
from mitosis.store.leases.ending import (
    end_lease,
    lock_group,
    lock_lease,
    lock_live_lease,
    lose_manager,
)
from mitosis.store.leases.failures import record_failure
from mitosis.store.managers.api_liveness import no_api_alive
from mitosis.store.managers.hello import lock_manager
from mitosis.store.managers.release_claims import is_confirmed
from mitosis.store.pg.database import Connection
from mitosis.store.store import Store

log = logging.getLogger(__name__)

_FAILURES = {
    ReleaseReason.UNREACHABLE: (HostFailureKind.UNREACHABLE, "it did not take an offer"),
    ReleaseReason.SETUP_LOST: (HostFailureKind.NO_PROGRESS, "its setup ended without a verdict"),
}
"""The ends of leases that are failures of the host for the task group."""


async def release_claimed(store: Store, request: ReleaseRequest) -> ReleaseAnswer:
    """End an epoch as a workflow asks, if PostgreSQL confirms the reason; else change nothing (ALIVE).

    Every user of the machine can reach Temporal, and call the activity with any request.

    Raises:
        NotFound: the request names no epoch, and there is no such manager.
    """
    return await release_lease(store, request, claimed=True)


async def release_lease(
    store: Store, request: ReleaseRequest, *, claimed: bool = False
) -> ReleaseAnswer:
    """End an epoch and requeue its tasks, as ``activities.managers.ManagerPort`` says.

    ``claimed``: the reason is a claim to be confirmed.

    Raises:
        NotFound: the request names no epoch, and there is no such manager.
    """
    async with store.database.transaction() as connection:
        if request.epoch is None:
            return await _lose_without_lease(connection, store, request.manager_id)
        lease = await lock_lease(connection, request.manager_id, request.epoch)
        if lease is None or lease.state is LeaseState.ENDED:
            return ReleaseAnswer(status=ReleaseStatus.ALREADY_ENDED)
        alive = ReleaseAnswer(status=ReleaseStatus.ALIVE, alive_in_seconds=lease.alive_in_seconds)
        taken = lease.state is not LeaseState.OFFERED
        # Offers have no alive_until; withdrawing one does not mean that the host is lost.
        lost = request.reason is ReleaseReason.LOST and taken
        if lost and ((lease.alive_in_seconds or 0.0) > 0 or await no_api_alive(connection)):
            return alive
        if request.reason is ReleaseReason.UNREACHABLE and taken:
            # The host took it a moment ago: only its clock or the host itself may end it now.
            return alive
        if claimed and not lost and not await is_confirmed(connection, store, lease, request):
            log.warning(
                "release.unconfirmed", extra={"epoch": lease.epoch, "reason": request.reason}
            )
            return alive
        requeued = await end_lease(connection, lease, request.reason, charge=lost, workflow=False)
        if (failed := _FAILURES.get(request.reason)) is not None:
            await record_failure(connection, lease.manager_number, lease.group_number, *failed)
        if lost:
            await lose_manager(connection, lease.manager_number)
    return ReleaseAnswer(status=ReleaseStatus.RELEASED, requeued=requeued)


async def release_over(store: Store, manager_id: UUID, epoch: int) -> None:
    """End a lease because its agent says that nothing runs under it any more, without Temporal (P8).

    An ENDING lease ends; of an ACTIVE one the setup has failed. Any other is left as it is.
    """
    async with store.database.transaction() as connection:
        lease = await lock_lease(connection, manager_id, epoch)
        if lease is None or lease.state not in (LeaseState.ACTIVE, LeaseState.ENDING):
            return
        group = await lock_group(connection, lease.group_number)
        reason = ReleaseReason.SETUP_FAILED
        if lease.state is LeaseState.ENDING:
            terminal = group.state in TASK_GROUP.terminal
            reason = ReleaseReason.GROUP_ENDED if terminal else ReleaseReason.MOVED
        await end_lease(connection, lease, reason)


async def _lose_without_lease(
    connection: Connection, store: Store, manager_id: UUID
) -> ReleaseAnswer:
    """Record the loss of a silent host that holds only environments: OFFLINE, its teardowns owed.

    An agent that said goodbye has as much time to return as a silent one.
    """
    manager = await lock_manager(connection, manager_id)
    if await lock_live_lease(connection, manager.id) is not None:
        return ReleaseAnswer(status=ReleaseStatus.ALIVE, alive_in_seconds=0.0)
    left = store.host_lost_after.total_seconds() - manager.silent_seconds
    if left > 0 or await no_api_alive(connection):
        return ReleaseAnswer(status=ReleaseStatus.ALIVE, alive_in_seconds=left)
    await lose_manager(connection, manager.id)
    return ReleaseAnswer(status=ReleaseStatus.RELEASED)
