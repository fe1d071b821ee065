"""Database activities of managers and of the scheduler: adapters over ports of the store.

Each method only forwards: Temporal binds activities to methods of an object, and workflows name them through
these classes without importing the store.
"""

from typing import Protocol
from uuid import UUID

from temporalio import activity

from activities.errors import as_application_errors
from mitosis.contracts.control import AssignAnswer, ManagerView, ReleaseAnswer, ReleaseRequest


class ManagerPort(Protocol):
    """The operations of the control plane on one manager in PostgreSQL."""

    async def observe_manager(self, manager_id: UUID) -> ManagerView:
        """Return the manager, its live lease and its environments as they are now."""
        ...

    async def decide_leases(self) -> None:
        """Ask the scheduler for a decision about leases whose time has come."""
        ...

    async def release(self, request: ReleaseRequest) -> ReleaseAnswer:
        """End an epoch and requeue what it held (protocol P1, P4).

        LOST succeeds only when ``alive_until`` has passed; it makes the manager OFFLINE and its
        environments owed. UNREACHABLE withdraws an offer, and nothing that has been taken. Every reason
        is a claim: nothing changes unless PostgreSQL confirms it. An ended epoch is success.
        """
        ...


class SchedulerPort(Protocol):
    """The operations of the scheduler on PostgreSQL."""

    async def assign_round(self) -> AssignAnswer:
        """Match idle managers to groups in one transaction and write OFFERED leases with their pokes."""
        ...


class ManagerActivities:
    """Adapter from Temporal to a :class:`ManagerPort` and a :class:`SchedulerPort`."""

    def __init__(self, managers: ManagerPort, scheduler: SchedulerPort) -> None:
        self._managers = managers
        self._scheduler = scheduler

    @activity.defn(name="observe_manager")
    async def observe(self, manager_id: UUID) -> ManagerView:
        with as_application_errors():
            return await self._managers.observe_manager(manager_id)

    @activity.defn(name="decide_leases")
    async def decide_leases(self, what: str) -> None:
        """Ask for a decision; ``what`` has come, which only the history shows."""
        with as_application_errors():
            await self._managers.decide_leases()

    @activity.defn(name="release_lease")
    async def release(self, request: ReleaseRequest) -> ReleaseAnswer:
        with as_application_errors():
            return await self._managers.release(request)

    @activity.defn(name="assign_round")
    async def assign_round(self) -> AssignAnswer:
        with as_application_errors():
            return await self._scheduler.assign_round()
