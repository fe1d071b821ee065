"""Whether the workers of a lease could be started on its host (protocol P7)."""

from uuid import UUID

from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import LeaseState
from mitosis.store.leases.ending import end_lease, lock_lease
from mitosis.store.leases.failures import forget_failures, record_failure
from mitosis.store.store import Store


async def record_workers(
    store: Store, manager_id: UUID, epoch: int, cannot_start: str | None
) -> None:
    """Record that workers run under this lease; or end it because they cannot be started on this host.

    The failure is remembered with a pause that grows, so that another host gets the work (protocol P7).
    """
    kind = HostFailureKind.WORKERS_NOT_STARTED
    async with store.database.transaction() as connection:
        lease = await lock_lease(connection, manager_id, epoch)
        if lease is None or lease.state is not LeaseState.ACTIVE:
            return
        host = (lease.manager_number, lease.group_number)
        if cannot_start is None:
            await forget_failures(connection, *host, (kind,))
            return
        await end_lease(connection, lease, ReleaseReason.WORKERS_NOT_STARTED)
        await record_failure(connection, *host, kind, cannot_start)
