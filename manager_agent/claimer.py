"""Asks for tasks: one claim at a time, with the same number until there is an answer (protocol P3)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from manager_agent.agent_api import AgentApi
from manager_agent.backoff import until_reached
from manager_agent.events import Claim, ClaimAbandoned, Claimed, Event, Renewed
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.wire import ClaimTasks, LeaseStanding

WAIT_SECONDS = 20.0
"""How long the API may hold a claim while nothing is claimable (P7)."""

log = logging.getLogger(__name__)


async def always_room() -> None:
    """For a host that is never short of anything."""


class Claimer:
    """Carries out the claims of one session; each ends in exactly one event."""

    def __init__(
        self,
        api: AgentApi,
        epoch: int,
        handle: Callable[[Event], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        """``room`` waits until this host can take on tasks."""
        self._api = api
        self._epoch = epoch
        self._handle = handle
        self._room = room
        self._running: asyncio.Task[None] | None = None

    def start(self, claim: Claim) -> None:
        """Ask; ``Claimed`` follows, or ``ClaimAbandoned``."""

        def given_up(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                self._handle(ClaimAbandoned(claim.claim_seq))

        self._running = asyncio.get_running_loop().create_task(self._ask(claim))
        self._running.add_done_callback(given_up)

    def abandon(self) -> None:
        """Stop waiting for an answer, if a claim is in flight."""
        if self._running is not None:
            self._running.cancel()

    async def _ask(self, claim: Claim) -> None:
        await self._room()
        request = ClaimTasks(
            epoch=self._epoch,
            claim_seq=claim.claim_seq,
            acked_seq=claim.acked_seq,
            max_tasks=claim.max_tasks,
            wait_seconds=WAIT_SECONDS,
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
