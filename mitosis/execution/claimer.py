"""Claims tasks: one claim at a time, repeated with the same number until it is answered (protocol P3)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mitosis.contracts.errors import MitosisError
from mitosis.contracts.wire import ClaimTasks, LeaseStanding
from mitosis.execution.backoff import until_reached
from mitosis.execution.events import Claim, ClaimAbandoned, Claimed, Event, Renewed
from mitosis.execution.port import SessionApi

WAIT_SECONDS = 8.0
"""How long the API may hold a claim while nothing is claimable (P7)."""

log = logging.getLogger(__name__)


async def always_room() -> None:
    """Return at once; for a host that always has room."""


class Claimer:
    """Makes the claims of one session; each ends with exactly one event."""

    def __init__(
        self,
        api: SessionApi,
        epoch: int,
        handle: Callable[[Event], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        """``room`` waits until this host has room for more tasks."""
        self._api = api
        self._epoch = epoch
        self._handle = handle
        self._room = room
        self._running: asyncio.Task[None] | None = None

    def start(self, claim: Claim) -> None:
        """Start one claim; the event ``Claimed`` or ``ClaimAbandoned`` follows."""

        def given_up(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                self._handle(ClaimAbandoned(claim.claim_seq))

        self._running = asyncio.get_running_loop().create_task(self._ask(claim))
        self._running.add_done_callback(given_up)

    def abandon(self) -> None:
        """Cancel the claim in flight, if any."""
        if self._running is not None:
            self._running.cancel()

    async def _ask(self, claim: Claim) -> None:
        await self._room()
        request = ClaimTasks(
            epoch=self._epoch,
            claim_seq=claim.claim_seq,
            acked_seq=claim.acked_seq,
            max_tasks=claim.max_tasks,
            wait_seconds=WAIT_SECONDS if claim.max_late else 0.0,
            max_late=claim.max_late or None,
        )
        try:
            answer = await until_reached(lambda: self._api.claim(request))
        except MitosisError as error:
            log.warning("claim.refused", extra={"epoch": self._epoch, "reason": error.message})
            self._running = None
            self._handle(Renewed(LeaseStanding.GONE))
            self._handle(ClaimAbandoned(claim.claim_seq))
        else:
            self._handle(Claimed(claim.claim_seq, answer.standing, tuple(answer.tasks)))
