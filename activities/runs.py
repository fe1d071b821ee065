"""Database activities of a run: adapters over a port that the store implements."""

from typing import Protocol
from uuid import UUID

from temporalio import activity

from activities.errors import as_application_errors
from mitosis.contracts.run_control import RunSituation, RunVerbRequest
from mitosis.contracts.schedule_control import Tick, TickAnswer


class RunPort(Protocol):
    """The operations of the control plane on one run in PostgreSQL (protocol P15)."""

    async def observe_run(self, run_id: UUID) -> RunSituation:
        """Carry on the run as far as it comes now, and return it; ``exists=False`` when it was deleted."""
        ...

    async def cancel_run(self, request: RunVerbRequest) -> RunSituation:
        """Cancel the rest of the run. A run that is cancelled already is success.

        Raises:
            NotFound: there is no such run.
            InvalidTransition: it has ended otherwise.
        """
        ...

    async def start_scheduled(self, tick: Tick) -> TickAnswer:
        """Start the run of a schedule for a time, or return the one that it has, or why it has none.

        Raises:
            DatabaseUnavailable: try again.
        """
        ...


class RunActivities:
    """Adapter from Temporal to a :class:`RunPort`."""

    def __init__(self, runs: RunPort) -> None:
        self._runs = runs

    @activity.defn(name="observe_run")
    async def observe(self, run_id: UUID) -> RunSituation:
        with as_application_errors():
            return await self._runs.observe_run(run_id)

    @activity.defn(name="cancel_run")
    async def cancel(self, request: RunVerbRequest) -> RunSituation:
        with as_application_errors():
            return await self._runs.cancel_run(request)

    @activity.defn(name="start_scheduled_run")
    async def start_scheduled(self, tick: Tick) -> TickAnswer:
        with as_application_errors():
            return await self._runs.start_scheduled(tick)
