"""The calls about the deployment itself; :class:`Client` has them."""

from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.processes import LiveProcesses
from mitosis.contracts.retention import Retention


class ProcessCalls(RepeatedCalls):
    """Show what runs, and what is kept."""

    async def processes(self) -> LiveProcesses:
        """Return the API and control processes that run now, with their versions."""
        return await self._get(LiveProcesses, "/processes")

    async def retention(self) -> Retention:
        """Return what the deployment keeps for how long, and what it has deleted."""
        return await self._get(Retention, "/retention")
