"""The outbox relay: from rows that PostgreSQL committed to pokes of workflows (protocol P6).

At least once, in no order, from any number of processes: a poke says only "look again". A row is deleted
after its poke was accepted; a row whose poke failed comes back by itself, so a killed relay loses nothing.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from temporalio.service import RPCError

from mitosis.concurrency import raise_if_cancelled
from mitosis.contracts.control import Poke
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from workflows.client import ControlClient, Kind
from workflows.ports import OutboxPort

log = logging.getLogger(__name__)

BATCH = 100
AT_ONCE = 16
IDLE_SECONDS = 5.0
"""How often rows that come back are looked for when nobody notifies."""
AFTER_TROUBLE_SECONDS = 1.0

Subject = tuple[Kind, UUID | None]


class Relay:
    """Sends what is due until it is cancelled."""

    def __init__(
        self,
        outbox: OutboxPort,
        client: ControlClient,
        on_trouble: Callable[[], None],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """``on_trouble`` is called when Temporal does not take a poke: perhaps its namespace is gone."""
        self._idle_seconds = idle_seconds
        self._outbox = outbox
        self._client = client
        self._on_trouble = on_trouble

    async def run(self) -> None:
        """Listen, send, wait; again and again. Outlives outages of PostgreSQL and of Temporal."""
        while True:
            try:
                async with self._outbox.listen_for_pokes() as listener:
                    while True:
                        pause = await self._send_due()
                        await listener.wait(pause)
                        raise_if_cancelled()
            except DatabaseUnavailable as error:
                log.warning("relay.database_unavailable", extra={"reason": error.message})
                await asyncio.sleep(AFTER_TROUBLE_SECONDS)

    async def _send_due(self) -> float:
        """Send what is due now; the seconds to wait for more."""
        try:
            while await self.send_batch():
                pass
        except TemporalUnavailable as error:
            log.warning("relay.temporal_unavailable", extra={"reason": error.message})
            self._on_trouble()
            await self._wait_for_temporal()
            return AFTER_TROUBLE_SECONDS
        return self._idle_seconds

    async def send_batch(self) -> int:
        """Take, send and delete one batch; how many rows it had.

        Raises:
            TemporalUnavailable: at least one poke was not taken; its rows come back.
        """
        pokes = await self._outbox.take_pokes(BATCH)
        failures = await self._send(by_subject(pokes))
        if failures:
            raise failures[0]
        return len(pokes)

    async def _send(self, due: Mapping[Subject, Sequence[int]]) -> list[TemporalUnavailable]:
        gate = asyncio.Semaphore(AT_ONCE)
        sent: list[int] = []
        failures: list[TemporalUnavailable] = []

        async def send(subject: Subject, ids: Sequence[int]) -> None:
            async with gate:
                if failures:
                    return
                try:
                    await self._client.poke(*subject)
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

    async def _wait_for_temporal(self) -> None:
        """Take nothing while nobody would take it: each attempt hides a row for longer."""
        while True:
            await asyncio.sleep(AFTER_TROUBLE_SECONDS)
            try:
                await self._client.poke("scheduler")
            except TemporalUnavailable:
                self._on_trouble()
            else:
                return


def by_subject(pokes: Sequence[Poke]) -> Mapping[Subject, Sequence[int]]:
    """Ids of the rows by whom they are for: one poke serves all that were committed before it."""
    ids: dict[Subject, list[int]] = defaultdict(list)
    for poke in pokes:
        ids[poke.kind, poke.subject].append(poke.id)
    return ids
