"""Pauses of a worker service that cannot start its slots, as where zygotes end again and again (P10).

A service does not end for that: it gives back what it holds, keeps its registration with heartbeats, and
starts its slots again after a pause, which grows while no start lasts.
"""

import asyncio
import logging

from mitosis.concurrency import within
from mitosis.contracts.errors import MitosisError
from mitosis.execution.reporter import Reporter
from mitosis.execution.session import Session
from mitosis.execution.session_workers import LASTING_SECONDS
from mitosis.retry_policy import Backoff, RetryPolicy
from mitosis.worker_service.registration import Registration

PAUSES = RetryPolicy(first_seconds=10.0, longest_seconds=600.0, jitter=0.0)
"""As those of a host whose workers cannot be started (``contracts/host_failures.py``)."""
GIVE_BACK_AGAIN_SECONDS = 5.0
"""So often it tries again during the pause to give back what it holds."""
REPORT_SECONDS = 3.0
"""So long it waits for the answers to its reports before it gives back the rest."""

log = logging.getLogger(__name__)


class SlotPauses:
    """The pauses of one session; at most one at a time."""

    def __init__(
        self,
        session: Session,
        registration: Registration,
        reporter: Reporter,
    ) -> None:
        """Pause nothing before :meth:`begin`.

        Args:
            session: its slots are ended and started.
            registration: begins again, so that what is held is given back at no charge.
            reporter: reports come before that.
        """
        self._session = session
        self._registration = registration
        self._reporter = reporter
        self._backoff = Backoff(PAUSES)
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._paused = False

    def begin(self, reason: str) -> None:
        """Pause because of ``reason``; a call during a pause changes nothing."""
        if not self._paused:
            self._paused = True
            self._session.background(self._pause(reason))

    async def _pause(self, reason: str) -> None:
        if self._loop.time() - self._began_at >= LASTING_SECONDS:
            self._backoff.reset()
        seconds = self._backoff.next_pause()
        log.error("slots.paused", extra={"reason": reason, "pause_seconds": seconds})
        ends = self._loop.time() + seconds
        await self._session.workers.pause(reason)
        said = f"pauses for {seconds:g} s: {reason}"
        given_back = await self._has_given_back(said)
        while (left := ends - self._loop.time()) > 0:
            await asyncio.sleep(left if given_back else min(left, GIVE_BACK_AGAIN_SECONDS))
            given_back = given_back or await self._has_given_back(said)
        self._paused, self._began_at = False, self._loop.time()
        await self._session.workers.start_after_pause()

    async def _has_given_back(self, reason: str) -> bool:
        try:
            await within(self._reporter.quiet(), REPORT_SECONDS)
            if self._reporter.pending():  # postponed for longer: their tasks must not run again
                log.warning("goodbye.omitted", extra={"reason": "reports are left in the journal"})
                return False
            await self._registration.start_over(reason)
        except (MitosisError, TimeoutError) as error:  # at the latest, the next claim returns it
            log.warning("tasks.not_given_back", extra={"reason": str(error) or "no answer"})
            return False
        return True
