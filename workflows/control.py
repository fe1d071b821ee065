"""The control plane as one service: Temporal worker, outbox relay and bootstrap, for any process.

It starts before PostgreSQL and Temporal do, waits for both, and survives their outages.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self
from uuid import UUID

from temporalio.service import RPCError
from temporalio.worker import Worker

from mitosis.concurrency import cancel_and_wait, wait_event
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from mitosis.retry_policy import Backoff, RetryPolicy
from workflows import bootstrap as bootstrapping
from workflows import look as looking
from workflows.backstop import backstops
from workflows.bootstrap import Bootstrap
from workflows.client import ControlClient, TemporalAddress
from workflows.deletions import Deletions
from workflows.look import Look
from workflows.namespace import ensure_namespace
from workflows.plugin import ControlPlugin
from workflows.ports import HousekeepingPort, OutboxPort
from workflows.relay import Relay
from workflows.schedule_turns import ScheduleTurns
from workflows.schedules import Schedules
from workflows.versions import Versions
from workflows.worker import ControlPorts, WorkerLimits, control_worker

log = logging.getLogger(__name__)

SESSIONS = RetryPolicy(first_seconds=0.2, longest_seconds=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often the control worker asks PostgreSQL by itself."""

    bootstrap_seconds: float = bootstrapping.EVERY_SECONDS
    look_seconds: float = looking.EVERY_SECONDS


class Part(Protocol):
    """A loop of a session."""

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class ControlService:
    """Runs while its context is open. Several may run at once, also in several processes."""

    def __init__(
        self,
        where: TemporalAddress,
        ports: ControlPorts,
        outbox: OutboxPort,
        housekeeping: HousekeepingPort,
        *,
        limits: WorkerLimits | None = None,
        every: Intervals | None = None,
    ) -> None:
        self._where = where
        self._ports = ports
        self._outbox = outbox
        self._housekeeping = housekeeping
        self._limits = limits or WorkerLimits()
        self._every = every or Intervals()
        self._turns = ScheduleTurns(
            housekeeping.due_schedules,
            housekeeping.take_schedule_turn,
            self._every.bootstrap_seconds,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._up = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether the worker runs on a Temporal server that has namespace and search attributes."""
        return self._up.is_set()

    async def wait_ready(self, seconds: float) -> None:
        """Wait for :attr:`ready`.

        Raises:
            TemporalUnavailable: not within ``seconds``.
        """
        if not await wait_event(self._up, seconds):
            raise TemporalUnavailable(
                f"no control worker on {self._where.address} after {seconds:g} s"
            )

    async def __aenter__(self) -> Self:
        """Start in the background. Returns at once, also when no server answers."""
        self._tasks = [
            asyncio.create_task(self._run(), name="control plane"),
            asyncio.create_task(Deletions(self._housekeeping).run(), name="deletions"),
            asyncio.create_task(self._turns.run(), name="turns of schedules"),
            *(
                asyncio.create_task(one.run(), name=one.name)
                for one in backstops(self._housekeeping)
            ),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop polling and give running activities 2 s to finish."""
        await cancel_and_wait(*self._tasks)

    async def _run(self) -> None:
        backoff = Backoff(SESSIONS)
        while True:
            try:
                await self._session()
            except Exception as error:  # noqa: BLE001 after any error the next session may work
                self._log_end(error)
            if self.ready:
                backoff.reset()
            self._up.clear()
            await asyncio.sleep(backoff.next_pause())

    async def _session(self) -> None:
        """Serve one connection to Temporal; raise when its worker cannot continue."""
        client = ControlClient(await self._where.connect(ControlPlugin()))
        schedules = Schedules(client.temporal, self._housekeeping)
        changes = ScheduleTurns(
            schedules.differing, schedules.ensure, self._every.bootstrap_seconds
        )
        bootstrap = Bootstrap(client, self._housekeeping, self._every.bootstrap_seconds)
        await ensure_namespace(client.temporal)
        look = Look(client, self._housekeeping, self._every.look_seconds)
        versions = Versions(client.temporal, self._housekeeping, offered=self._limits.versioned)
        deployment = await versions.begin()
        worker = control_worker(client.temporal, self._ports, self._limits, deployment)

        def on_schedule(schedule_id: UUID) -> None:
            self._turns.ask([schedule_id])
            changes.ask([schedule_id])

        relay = Relay(self._outbox, client, on_failure=bootstrap.ask, on_schedule=on_schedule)
        bootstrap.ask()
        try:
            await self._serve(worker, versions, (relay, bootstrap, look, changes, versions))
        except asyncio.CancelledError:
            await versions.hand_over()
            raise

    async def _serve(self, worker: Worker, versions: Versions, parts: Sequence[Part]) -> None:
        async with asyncio.TaskGroup() as together:
            together.create_task(worker.run(), name="control worker")
            await versions.wait_routed()
            for part in parts:
                together.create_task(part.run(), name=type(part).__name__)
            self._up.set()
            log.info("control.started", extra={"address": self._where.address})

    def _log_end(self, error: Exception) -> None:
        causes = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        known = (TemporalUnavailable, DatabaseUnavailable, RPCError)
        if all(isinstance(cause, known) for cause in causes):
            log.warning("control.session_ended", extra={"reason": "; ".join(map(str, causes))})
        else:
            log.error("control.session_failed", exc_info=error)
