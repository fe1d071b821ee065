"""The activities of a host, on its own task queue. Typed for workflows; implemented by the agent.

This module never imports the store or the agent: the agent implements :class:`HostPort` and passes
itself in. The methods of :class:`HostActivities` only forward, because Temporal binds activities to methods
of an object. The agent confirms everything that a command names with the API before it acts (protocol P6).
"""

from typing import Protocol

from temporalio import activity

from mitosis.contracts.control import HookOutcome, HostCommand, LeaseOutcome


class HostPort(Protocol):
    """The commands of Temporal to a manager agent. All three are idempotent and send heartbeats."""

    async def prepare_environment(self, command: HostCommand) -> HookOutcome:
        """Take the offered lease and run the setup hook, unless a checkpoint shows it is done."""
        ...

    async def run_lease(self, command: HostCommand) -> LeaseOutcome:
        """Run tasks under the lease until PostgreSQL ends it. Attaches to a lease that already runs."""
        ...

    async def clean_environment(self, command: HostCommand) -> HookOutcome:
        """Run the teardown hook when no task of the group, of any epoch, runs or is held here."""
        ...


class HostActivities:
    """Adapter from Temporal to a :class:`HostPort`."""

    def __init__(self, host: HostPort) -> None:
        self._host = host

    @activity.defn(name="prepare_environment")
    async def prepare_environment(self, command: HostCommand) -> HookOutcome:
        return await self._host.prepare_environment(command)

    @activity.defn(name="run_lease")
    async def run_lease(self, command: HostCommand) -> LeaseOutcome:
        return await self._host.run_lease(command)

    @activity.defn(name="clean_environment")
    async def clean_environment(self, command: HostCommand) -> HookOutcome:
        return await self._host.clean_environment(command)
