"""Holds the reports that the API has not acknowledged, and has them sent; until then they are in the journal.

A single report is sent at once; under load up to 256 are gathered for up to 50 ms. Each is written to
the journal within some milliseconds, beside the sending, so a killed agent repeats hardly a task that had
ended. They are forced to disk only if there is no answer after DURABLE_AFTER_SECONDS: forcing every batch
would only help a host that loses power within that tenth of a second, and would load a disk that PostgreSQL
may use. Only threads write: a disk that blocks must not keep this host from renewing its lease.

The reports that an earlier process left are the first in the queue: they are sent beside new work.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile

from mitosis.concurrency import race, wait_event
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.http import MAX_ATTEMPTS_LISTED
from mitosis.contracts.wire import LeaseStanding, ReportAnswer, ReportStatus
from mitosis.execution.events import Reported
from mitosis.execution.journal import Entry, Journal
from mitosis.execution.port import SessionApi
from mitosis.execution.postponed_reports import PostponedReports
from mitosis.execution.report_sender import ReportSender
from mitosis.fates import Fate, fate
from mitosis.ipc.messages import EncodedReport

BATCH = 256
LARGEST_BATCH = 4 * BATCH
"""A call holds no more reports: the API refuses a request that is too large."""
LARGEST_BATCH_BYTES = 16_000_000
"""A call holds no more bytes of reports, unless one report alone is larger (protocol P5)."""
GATHER_SECONDS = 0.05
DURABLE_AFTER_SECONDS = 0.1
MOST_WAITING = 10_000
MOST_WAITING_BYTES = 64_000_000
"""With more reports or bytes waiting, this host claims no tasks."""
WRITE_AFTER_SECONDS = 0.005
"""What comes within this time is one write, and not written at all if the API has acknowledged it by then."""
EVERY = -1
"""Subscribes to the acknowledgements of all reports that have no subscriber of their own."""
CLEAR_AFTER_SECONDS = 0.5
"""How long no report must be waiting before the journal is cleared."""

log = logging.getLogger(__name__)


class Reporter:
    """One for the whole agent: it still sends reports of an old session while the next one runs."""

    def __init__(self, api: SessionApi, journal: Journal) -> None:
        """Take what an earlier process left in the journal; nothing is sent before :meth:`run`."""
        self._subscribers: dict[int, Callable[[Reported], None]] = {}
        self._sender = ReportSender(api, self._on_answer, self._on_postponed)
        self._postponed = PostponedReports(self._sender.send, self._on_left)
        self._journal = journal
        self._waiting: list[Entry] = journal.take_entries()
        self._waiting_bytes = sum(len(report.report) for _, report in self._waiting)
        self._first = self._durable = 0
        self._written = self._replay_end = len(self._waiting)
        """Numbers of reports, counted since the start: the first that waits, the first that is not on
        disk, the first that is not in the journal, the first of this process."""
        self._writing = asyncio.Lock()
        self._write_failed = False
        self._changed = asyncio.Event()
        self._more = asyncio.Event()
        self._flush = asyncio.Event()
        self._quiet = asyncio.Event()
        self._room = asyncio.Event()
        self._replayed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._last_sent = -GATHER_SECONDS
        if self._waiting:
            log.info("journal.replayed", extra={"reports": len(self._waiting)})
            self._more.set()
        self._settle()

    def add(self, epoch: int, reports: Sequence[EncodedReport], urgent: bool) -> None:
        """Accept these reports of one epoch; ``urgent``: send them without gathering others."""
        self._waiting += [(epoch, report) for report in reports]
        self._waiting_bytes += sum(len(report.report) for report in reports)
        self._settle()
        self._changed.set()
        self._more.set()
        if urgent or len(self._waiting) >= BATCH:
            self._flush.set()

    def subscribe(self, epoch: int, acknowledged: Callable[[Reported], None]) -> None:
        """Call ``acknowledged`` whenever the API has acknowledged reports of this epoch.

        Raises:
            RuntimeError: the epoch has a subscriber, whose acknowledgements would be lost.
        """
        if epoch in self._subscribers:
            raise RuntimeError(f"the reports of epoch {epoch} have a subscriber already")
        self._subscribers[epoch] = acknowledged

    def unsubscribe(self, epoch: int) -> None:
        """Stop calling back for this epoch; its reports are still sent. Idempotent."""
        self._subscribers.pop(epoch, None)

    async def quiet(self) -> None:
        """Wait until everything is acknowledged."""
        await self._quiet.wait()

    async def replayed(self) -> None:
        """Wait until each report of an earlier process is acknowledged or postponed."""
        await self._replayed.wait()

    async def room(self) -> None:
        """Wait until few enough reports wait for this host to claim tasks."""
        if not self._room.is_set():
            log.warning(
                "reports.pile_up",
                extra={"reports": len(self._waiting), "bytes": self._waiting_bytes},
            )
            await self._room.wait()

    def trouble(self) -> str | None:
        """Return why reports wait although the API may be in contact, and what becomes of them."""
        found = self._postponed.trouble() or self._sender.trouble
        return None if found is None else found.encode(errors="replace").decode()[:1_000]

    def unacknowledged(self) -> list[AttemptKey]:
        """Return the attempts whose reports the API may not have; at most MAX_ATTEMPTS_LISTED, the newest."""
        return [key for _, key in self.pending()][-MAX_ATTEMPTS_LISTED:]

    def pending(self) -> list[tuple[int, AttemptKey]]:
        """Return all attempts whose reports the API may not have, each with the number of its report."""
        entries = (*self._postponed.entries(), *self._waiting)
        return [(epoch, report.key) for epoch, report in entries]

    async def run(self) -> None:
        """Send and write until cancelled.

        Raises:
            MitosisError: the API refuses this agent for good. The journal keeps the reports.
        """
        beside = [
            self._loop.create_task(self._keep_writing()),
            self._loop.create_task(self._postponed.run()),
        ]
        try:
            while True:
                if not self._more.is_set():
                    await race(self._more.wait(), *beside)
                await self._gather()
                epoch, batch = self._next_batch()
                await self._send_or_keep(epoch, batch)
                self._sent(len(batch))
        finally:
            for task in beside:
                task.cancel()

    def close(self) -> None:
        """Write the reports that wait to the journal, for the next process, and close it."""
        with contextlib.suppress(OSError):
            if self._waiting or self._postponed.entries():
                self._journal.finish(self._waiting[max(0, self._written - self._first) :])
            else:
                self._journal.clear()
        self._journal.close()

    async def _send_or_keep(self, epoch: int, reports: list[EncodedReport]) -> None:
        sending = self._loop.create_task(self._sender.send(epoch, reports))
        try:
            while not (await asyncio.wait([sending], timeout=DURABLE_AFTER_SECONDS))[0]:
                await self._write(durable=True)
            await sending
            if self._postponed.take_new():  # in the journal before they leave the queue
                await self._write(durable=False)
        finally:
            sending.cancel()

    async def _gather(self) -> None:
        """Wait until GATHER_SECONDS after the last batch, unless a batch is full or a report is urgent."""
        wait = self._last_sent + GATHER_SECONDS - self._loop.time()
        if wait > 0 and len(self._waiting) < BATCH:
            await wait_event(self._flush, wait)
        self._flush.clear()
        self._last_sent = self._loop.time()

    async def _keep_writing(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._waiting:
                await asyncio.sleep(WRITE_AFTER_SECONDS)
                await self._write(durable=False)
                continue
            await wait_event(self._changed, CLEAR_AFTER_SECONDS)
            if not self._waiting:
                await self._clear()

    async def _write(self, *, durable: bool) -> None:
        """Write to the journal what is not in it yet."""
        async with self._writing:
            aside = self._postponed.entries()
            kept = len(aside) + max(0, self._written - self._first)
            new_round = self._journal.worth_rewinding(kept)
            start = self._first if new_round else max(self._written, self._first)
            entries = self._waiting[start - self._first :]
            end = start + len(entries)
            if not entries and not (durable and self._durable < end):
                return
            try:
                await asyncio.to_thread(
                    self._journal.write,
                    [*aside, *entries] if new_round else entries,
                    new_round=new_round,
                    kept=kept,
                    durable=durable,
                )
            except OSError as error:
                if not self._write_failed:
                    log.error("journal.not_written", extra={"reason": str(error)})  # noqa: TRY400
                self._write_failed = True
                return
            self._write_failed = False
            self._written = end
            self._durable = end if durable else self._durable

    async def _clear(self) -> None:
        async with self._writing:
            if not self._waiting and not self._postponed.entries():
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._journal.clear)

    def _next_batch(self) -> tuple[int, list[EncodedReport]]:
        epoch = self._waiting[0][0]
        ours = takewhile(lambda entry: entry[0] == epoch, self._waiting[:LARGEST_BATCH])
        return epoch, _batch([report for _, report in ours])

    def _sent(self, count: int) -> None:
        self._waiting_bytes -= sum(len(report.report) for _, report in self._waiting[:count])
        del self._waiting[:count]
        self._first += count
        if not self._waiting:
            self._more.clear()
            self._changed.set()
        self._settle()

    def _settle(self) -> None:
        """Set the events that the number of waiting reports decides."""
        settling = self._postponed.settling
        _set(self._quiet, on=not self._waiting and not settling)
        _set(self._replayed, on=self._first >= self._replay_end and not settling)
        few = len(self._waiting) < MOST_WAITING and self._waiting_bytes < MOST_WAITING_BYTES
        _set(self._room, on=few)

    def _on_left(self) -> None:
        """Have the journal cleared once no report is postponed any more."""
        self._settle()
        self._changed.set()

    def _on_answer(
        self, epoch: int, reports: Sequence[EncodedReport], answer: ReportAnswer
    ) -> None:
        keys = tuple(report.key for report in reports)
        for key, status in zip(keys, answer.statuses, strict=True):
            if status in (ReportStatus.SUPERSEDED, ReportStatus.UNKNOWN):
                log.warning(
                    "report.superseded",
                    extra={"task_id": key.task_id, "attempt": key.attempt, "status": status},
                )
        self._acknowledge(epoch, Reported(keys, answer.standing))

    def _on_postponed(self, epoch: int, report: EncodedReport, error: MitosisError) -> None:
        """Keep a report for later. If that may take long, its session need not wait for it."""
        self._postponed.add((epoch, report), error)
        self._settle()
        if fate(error) is not Fate.CALL_REFUSED:
            self._acknowledge(epoch, Reported((report.key,), LeaseStanding.ACTIVE))

    def _acknowledge(self, epoch: int, event: Reported) -> None:
        if acknowledged := self._subscribers.get(epoch) or self._subscribers.get(EVERY):
            acknowledged(event)


def _set(event: asyncio.Event, *, on: bool) -> None:
    if on:
        event.set()
    else:
        event.clear()


def _batch(reports: Sequence[EncodedReport]) -> list[EncodedReport]:
    """Return the first reports, as many as one call carries: up to LARGEST_BATCH_BYTES, at least one."""
    sizes = accumulate(len(report.report) for report in reports)
    count = sum(1 for _ in takewhile(lambda size: size <= LARGEST_BATCH_BYTES, sizes))
    return list(reports[: max(1, count)])
