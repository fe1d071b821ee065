"""A host for timer tests: it does what its script says, on the host's own task queue."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from activities.host import HostActivities
from mitosis.contracts.control import (
    HookOutcome,
    HookVerdict,
    HostCommand,
    LeaseEnd,
    LeaseOutcome,
)
from mitosis.contracts.lifecycle import EnvironmentState, LeaseState
from mitosis.contracts.temporal_names import host_task_queue
from tests.workflow.memory import MemoryHost


class ScriptedHost:
    """Implements ``HostPort`` over a :class:`MemoryHost`, as an agent would over the API.

    It sees the end of its lease only when it is asked to check. If it saw that by itself, its activity could
    end while a workflow task asks for the check: the time-skipping server refuses such a task for good
    (``ACTIVITY_UNKNOWN``); a real one does not (``tests/integration/workflows/test_crossing.py``).
    """

    def __init__(self, memory: MemoryHost) -> None:
        self.memory = memory
        self.setup = HookVerdict.READY
        self.mute = False
        """Stops heartbeating and never answers, like a killed process."""
        self.stubborn = False
        """Heartbeats for ever, whatever happens to its lease."""
        self.running = asyncio.Event()
        self.stop = asyncio.Event()
        self.leases_run = 0
        """Calls of :meth:`run_lease` that have not returned, also those that Temporal has given up."""
        self.calls: list[str] = []

    async def prepare_environment(self, command: HostCommand) -> HookOutcome:
        self.calls.append("prepare")
        assert command.epoch is not None
        if not await self.memory.take(command.epoch):
            return HookOutcome(verdict=HookVerdict.LEASE_LOST)
        if self.setup is HookVerdict.READY:
            self.memory.host.environments[command.task_group_id] = EnvironmentState.READY
        return HookOutcome(verdict=self.setup)

    async def run_lease(self, command: HostCommand) -> LeaseOutcome:
        self.calls.append("run")
        self.running.set()
        self.leases_run += 1
        try:
            return await self._run_lease(command)
        finally:
            self.leases_run -= 1

    async def _run_lease(self, command: HostCommand) -> LeaseOutcome:
        try:
            if not self._ending(command):
                await self._beat_until(self.stop.is_set)
        except asyncio.CancelledError:
            if self.stubborn:
                await self._beat_until(self.stop.is_set)
            if not self._ending(command):
                return LeaseOutcome(end=LeaseEnd.DETACHED)
        self.running.clear()
        return LeaseOutcome(end=LeaseEnd.ENDING if self._ending(command) else LeaseEnd.STOPPING)

    async def clean_environment(self, command: HostCommand) -> HookOutcome:
        self.calls.append("clean")
        self.memory.host.environments[command.task_group_id] = EnvironmentState.GONE
        return HookOutcome(verdict=HookVerdict.CLEANED)

    def _ending(self, command: HostCommand) -> bool:
        lease = self.memory.host.lease
        return lease is None or lease.epoch != command.epoch or lease.state is not LeaseState.ACTIVE

    async def _beat_until(self, over: Callable[[], bool]) -> None:
        while self.mute or self.stubborn or not over():
            if self.stop.is_set():
                return
            if not self.mute:
                await self.memory.contact()
                activity.heartbeat()
            await asyncio.sleep(0.05)


def host_worker(client: Client, manager_id: UUID, host: ScriptedHost) -> Worker:
    """The Temporal worker of an agent. Use with ``async with``."""
    activities = HostActivities(host)
    return Worker(
        client,
        task_queue=host_task_queue(manager_id),
        activities=[
            activities.prepare_environment,
            activities.run_lease,
            activities.clean_environment,
        ],
        max_heartbeat_throttle_interval=timedelta(seconds=1),
    )
