"""The outbox relay: sends the rows that PostgreSQL committed as pokes of workflows (protocol P6).

It delivers at least once, in any order, from any number of processes: a poke says only "look again". A row
is deleted after its poke was accepted; after a failure it becomes due again, so a killed relay loses nothing.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from temporalio.service import RPCError

from mitosis.concurrency import raise_if_cancelled
from mitosis.contracts.control import Names, Poke, PokeKind
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from workflows.client import ControlClient
from workflows.ports import OutboxPort

log = logging.getLogger(__name__)

BATCH = 100
AT_ONCE = 16
IDLE_SECONDS = 5.0
"""How often to look for rows that are due again without a notification."""
AFTER_FAILURE_SECONDS = 1.0

Subject = tuple[PokeKind, UUID | None]


class Relay:
    """Sends due rows until it is cancelled."""

    def __init__(
        self,
        outbox: OutboxPort,
        client: ControlClient,
        on_failure: Callable[[], None],
        idle_seconds: float = IDLE_SECONDS,
        on_schedule: Callable[[UUID], None] = lambda _: None,
    ) -> None:
        """``on_failure`` is called when Temporal does not accept a poke: its namespace may be gone.

        ``on_schedule`` is called for a schedule. Its rows say what to do, so a lost call is harmless.
        """
        self._on_schedule = on_schedule
        self._idle_seconds = idle_seconds
        self._outbox = outbox
        self._client = client
        self._on_failure = on_failure

    async def run(self) -> None:
        """Listen, send and wait repeatedly. Survives outages of PostgreSQL and of Temporal."""
        while True:
            try:
                async with self._outbox.listen_for_pokes() as listener:
                    while True:
                        pause = await self._send_due()
                        await listener.wait(pause)
                        raise_if_cancelled()
            except DatabaseUnavailable as error:
                log.warning("relay.database_unavailable", extra={"reason": error.message})
                await asyncio.sleep(AFTER_FAILURE_SECONDS)

    async def _send_due(self) -> float:
        """Send what is due now; return how many seconds to wait for more."""
        try:
            while await self.send_batch():
                pass
        except TemporalUnavailable as error:
            log.warning("relay.temporal_unavailable", extra={"reason": error.message})
            self._on_failure()
            await self._wait_for_temporal()
            return AFTER_FAILURE_SECONDS
        return self._idle_seconds

    async def send_batch(self) -> int:
        """Take, send and delete one batch; return how many rows it had.

        Raises:
            TemporalUnavailable: at least one poke was not accepted; its rows become due again.
        """
        pokes = await self._outbox.take_pokes(BATCH)
        names = {(poke.kind, poke.subject): poke.names for poke in pokes}
        failures = await self._send(by_subject(pokes), names)
        if failures:
            raise failures[0]
        return len(pokes)

    async def _send(
        self, due: Mapping[Subject, Sequence[int]], names: Mapping[Subject, Names]
    ) -> list[TemporalUnavailable]:
        gate = asyncio.Semaphore(AT_ONCE)
        sent: list[int] = []
        failures: list[TemporalUnavailable] = []

        async def send(subject: Subject, ids: Sequence[int]) -> None:
            async with gate:
                if failures:
                    return
                try:
                    await self._poke(subject, names[subject])
                except TemporalUnavailable as error:
                    failures.append(error)
                except RPCError as error:
                    facts = {"subject": str(subject), "reason": error.message}
                    log.exception("relay.poke_refused", extra=facts)
                else:
                    sent.extend(ids)

        await asyncio.gather(*(send(subject, ids) for subject, ids in due.items()))
        await self._outbox.delete_pokes(sent)
        return failures

    async def _poke(self, subject: Subject, names: Names) -> None:
        kind, which = subject
        if kind != "schedule":
            await self._client.poke(kind, which, names)
        elif which is not None:
            self._on_schedule(which)

    async def _wait_for_temporal(self) -> None:
        """Wait until Temporal accepts a poke. Rows taken before would stay hidden for longer each time."""
        while True:
            await asyncio.sleep(AFTER_FAILURE_SECONDS)
            try:
                await self._client.poke("scheduler")
            except TemporalUnavailable:
                self._on_failure()
            else:
                return


def by_subject(pokes: Sequence[Poke]) -> Mapping[Subject, Sequence[int]]:
    """Group the ids of the rows by subject: one poke serves all rows committed before it."""
    ids: dict[Subject, list[int]] = defaultdict(list)
    for poke in pokes:
        ids[poke.kind, poke.subject].append(poke.id)
    return ids
