"""The look of the control worker (protocol P7): asks PostgreSQL every 5 s whether anything waits for a round.

A backstop that needs no earlier wakeup: it finds what a lost poke or notification left behind, and what came
due without a transaction. It signals the scheduler only then, hosts only for offers they have not taken, and
task groups only if their setup has failed everywhere, or for their details (``situation_signals``), as
hosts without a lease.
What is found once may be on its way, so it is looked for again soon, and signalled if it still waits. What is
found unchanged again and again is signalled ever more seldom.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar
from uuid import UUID

from temporalio.service import RPCError

from mitosis.concurrency import raise_if_cancelled
from mitosis.contracts.control import WaitingWork
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from mitosis.retry_policy import Backoff, RetryPolicy
from workflows.client import ControlClient
from workflows.ports import LookPort
from workflows.situation_signals import NOT_IDLE, SituationSignals

EVERY_SECONDS = 5.0
SOON_SECONDS = 1.5
"""The next look comes so soon after one that found something new, and after a signal: a new offer may need
one to its host. So work waits at most 8 s, also where every other message is lost."""
UNCHANGED = RetryPolicy(first_seconds=EVERY_SECONDS, longest_seconds=300.0, jitter=0.0)
"""Pauses between signals for the same thing: an hour of it costs the scheduler fewer than 200 events."""
SHARE = 20
"""A look may take this part of the time at most: one that took long is repeated later."""

log = logging.getLogger(__name__)
Thing = TypeVar("Thing", bound=Hashable)


class SignalTimes(Generic[Thing]):
    """When each thing that looks find is signalled again: at once if it is new. Pure.

    It is as large as the last answer: what is not found any more is forgotten.
    """

    def __init__(self) -> None:
        self._next: dict[Thing, tuple[Backoff, float]] = {}

    def due(self, found: Collection[Thing], now: float) -> list[Thing]:
        """Return those of the things found that are to be signalled now."""
        self._next = {thing: self._next[thing] for thing in found if thing in self._next}
        return [thing for thing in found if thing not in self._next or self._next[thing][1] <= now]

    def signalled(self, things: Collection[Thing], now: float) -> None:
        """Record that things were signalled: each pause of one is longer than the one before."""
        for thing in things:
            backoff, _ = self._next.get(thing, (Backoff(UNCHANGED), 0.0))
            self._next[thing] = (backoff, now + backoff.next_pause())


class Look:
    """Looks until it is cancelled. Several may run at once, also in several processes."""

    def __init__(
        self, client: ControlClient, port: LookPort, every_seconds: float = EVERY_SECONDS
    ) -> None:
        self._client = client
        self._port = port
        self._every = every_seconds
        self._work = SignalTimes[tuple[str, int]]()
        self._offers = SignalTimes[int]()
        self._groups = SignalTimes[UUID]()
        self._situations = SituationSignals()
        self._idle_hosts = SituationSignals()
        self._found_before: frozenset[tuple[str, int]] = frozenset()

    async def run(self) -> None:
        """Look and signal repeatedly. Survives outages of PostgreSQL and of Temporal."""
        pause = self._every
        while True:
            await asyncio.sleep(pause)
            raise_if_cancelled()
            began = time.monotonic()
            pause = self._every
            try:
                found = await self._port.look()
                took = time.monotonic() - began
                if await self.signal(found, asyncio.get_running_loop().time()):
                    pause = min(pause, SOON_SECONDS)
                pause = max(pause, SHARE * took)
            except (TemporalUnavailable, DatabaseUnavailable, RPCError) as error:
                log.warning("look.failed", extra={"reason": str(error)})

    async def signal(self, found: WaitingWork, now: float) -> bool:
        """Signal what is due at ``now``, in seconds; return whether to look again soon.

        Raises:
            TemporalUnavailable, RPCError: the signal that was not accepted stays due.
        """
        # A lease that is newer than at the last look: a round has acted, and this is waiting again.
        work = [(line, found.last_epoch) for line in found.what]
        waits = [thing for thing in work if thing in self._found_before]
        self._found_before = frozenset(work)
        due = self._work.due(waits, now)
        if due:
            log.info("look.signals", extra={"what": [line for line, _ in due[:5]]})
            await self._client.poke("scheduler")
            self._work.signalled(waits, now)  # one round serves all of it
        for epoch in self._offers.due(found.offered, now):
            await self._client.poke("manager", found.offered[epoch])
            self._offers.signalled([epoch], now)
        for group in self._groups.due(found.groups, now):
            await self._client.poke("task_group", group)
            self._groups.signalled([group], now)
        for group in self._situations.due(found.situations, now):
            await self._client.poke("task_group", group)
            self._situations.signalled(group, now)
        busy = dict.fromkeys(self._idle_hosts.idle() - found.idle_hosts.keys(), NOT_IDLE)
        for host in self._idle_hosts.due({**busy, **found.idle_hosts}, now):
            await self._client.poke("manager", host)
            self._idle_hosts.signalled(host, now)
        return bool(due) or len(waits) < len(work)
