"""The call about the processes of the deployment; :class:`Client` has it."""

from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.processes import LiveProcesses


class ProcessCalls(RepeatedCalls):
    """Show what runs."""

    async def processes(self) -> LiveProcesses:
        """Return the API and control processes that run now, with their versions."""
        return await self._get(LiveProcesses, "/processes")
