"""The look of the control worker (protocol P7): asks PostgreSQL every 5 s whether anything waits for a round.

A backstop that needs no earlier wakeup: it finds what a lost poke or notification left behind, and what came
due without a transaction. It signals the scheduler only then, and hosts only for offers they have not taken.
"""

import asyncio
import logging
import time

from temporalio.service import RPCError

from mitosis.concurrency import raise_if_cancelled
from mitosis.contracts.control import WaitingWork
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from mitosis.retry_policy import Backoff, RetryPolicy
from workflows.client import ControlClient
from workflows.ports import LookPort

EVERY_SECONDS = 5.0
AFTER_SIGNAL_SECONDS = 1.5
"""After a signal the next look comes sooner: a new offer may need one to its host."""
SAME = RetryPolicy(first_seconds=EVERY_SECONDS, longest_seconds=60.0, jitter=0.0)
"""Pauses while the same thing is found again and again, so that no history grows without end."""
SHARE = 20
"""A look may take this part of the time at most: one that took long is repeated later."""

log = logging.getLogger(__name__)


class Look:
    """Looks until it is cancelled. Several may run at once, also in several processes."""

    def __init__(
        self, client: ControlClient, port: LookPort, every_seconds: float = EVERY_SECONDS
    ) -> None:
        self._client = client
        self._port = port
        self._every = every_seconds
        self._last: str | None = None
        self._same = Backoff(SAME)

    async def run(self) -> None:
        """Look and signal repeatedly. Survives outages of PostgreSQL and of Temporal."""
        pause = self._every
        while True:
            await asyncio.sleep(pause)
            raise_if_cancelled()
            began = time.monotonic()
            try:
                found = await self._port.look()
                took = time.monotonic() - began
                await self._signal(found)
            except (TemporalUnavailable, DatabaseUnavailable, RPCError) as error:
                log.warning("look.failed", extra={"reason": str(error)})
                pause = self._every
            else:
                pause = max(self._pause_after(found), SHARE * took)

    async def _signal(self, found: WaitingWork) -> None:
        if found.what is not None:
            log.info("look.signals", extra={"what": found.what})
            await self._client.poke("scheduler")
        for manager in found.offered:
            await self._client.poke("manager", manager)

    def _pause_after(self, found: WaitingWork) -> float:
        if found.what is None or found.what != self._last:
            self._same.reset()
            self._last = found.what
            return self._every if found.what is None else min(self._every, AFTER_SIGNAL_SECONDS)
        return max(self._every, self._same.next_pause())
