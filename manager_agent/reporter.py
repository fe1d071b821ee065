"""Sends reports to the API until they are acknowledged; until then they are in the journal too.

A single report is sent at once; under load up to 256 are gathered for up to 50 ms. Each is written to
the journal as it comes, beside the sending, so a killed agent repeats no task that had ended. They are
forced to disk only if there is no answer after DURABLE_AFTER_SECONDS: forcing every batch would only
help a host that loses power within that tenth of a second, and would load a disk that PostgreSQL may use.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile

from manager_agent.agent_api import AgentApi
from manager_agent.backoff import REPORT_POLICY
from manager_agent.events import Reported
from manager_agent.journal import Entry, Journal
from mitosis.concurrency import wait_event
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.wire import ReportAnswer, ReportStatus
from mitosis.ipc.messages import EncodedReport
from mitosis.retry_policy import retrying

BATCH = 256
LARGEST_BATCH = 4 * BATCH
"""A call holds no more reports: the API refuses a request that is too large."""
LARGEST_BATCH_BYTES = 16_000_000
"""A call holds no more bytes of reports, unless one report alone is larger (protocol P5)."""
GATHER_SECONDS = 0.05
DURABLE_AFTER_SECONDS = 0.1
CLEAR_AFTER_SECONDS = 0.5
"""How long no report must be waiting before the journal is cleared."""

log = logging.getLogger(__name__)


class Reporter:
    """One for the whole agent: it still sends reports of an old session while the next one runs."""

    def __init__(self, api: AgentApi, journal: Journal) -> None:
        self._subscribers: dict[int, Callable[[Reported], None]] = {}
        self._api = api
        self._journal = journal
        self._waiting: list[Entry] = []
        self._first = self._written = self._durable = 0
        """Numbers of reports, counted since the start: the first that waits, the first that is not in
        the journal, the first that is not on disk."""
        self._writing = asyncio.Lock()
        self._write_failed = False
        self._changed = asyncio.Event()
        self._more = asyncio.Event()
        self._flush = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._loop = asyncio.get_running_loop()
        self._last_sent = -GATHER_SECONDS

    def add(self, epoch: int, reports: Sequence[EncodedReport], urgent: bool) -> None:
        """Accept these reports of one epoch; ``urgent``: send them without gathering others."""
        self._waiting += [(epoch, report) for report in reports]
        self._quiet.clear()
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

    async def replay(self) -> None:
        """Send the reports that an earlier process left, until they are acknowledged (protocol P5)."""
        for epoch, reports in self._journal.pending.items():
            log.info("journal.replayed", extra={"epoch": epoch, "reports": len(reports)})
            first = 0
            while batch := _batch(reports[first : first + LARGEST_BATCH]):
                await self._send(epoch, batch)
                first += len(batch)
        self._journal.clear()

    async def run(self) -> None:
        """Send and write until cancelled."""
        writing = self._loop.create_task(self._keep_writing())
        try:
            while True:
                await self._more.wait()
                await self._gather()
                epoch, batch = self._next_batch()
                await self._send_or_keep(epoch, batch)
                self._sent(len(batch))
        finally:
            writing.cancel()

    def close(self) -> None:
        """Write the reports that wait to the journal, for the next process, and close it."""
        with contextlib.suppress(OSError):
            if self._waiting:
                self._journal.write(self._waiting, new_round=True, durable=True)
            else:
                self._journal.clear()
        self._journal.close()

    async def _send_or_keep(self, epoch: int, reports: list[EncodedReport]) -> None:
        sending = self._loop.create_task(self._send(epoch, reports))
        try:
            while not (await asyncio.wait([sending], timeout=DURABLE_AFTER_SECONDS))[0]:
                await self._write(durable=True)
            await sending
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
                await self._write(durable=False)
                continue
            await wait_event(self._changed, CLEAR_AFTER_SECONDS)
            if not self._waiting:
                await self._clear()

    async def _write(self, *, durable: bool) -> None:
        """Write to the journal what is not in it yet; in a thread, since a disk may be slow."""
        async with self._writing:
            new_round = self._journal.worth_rewinding(max(0, self._written - self._first))
            start = self._first if new_round else max(self._written, self._first)
            entries = self._waiting[start - self._first :]
            end = start + len(entries)
            if not entries and not (durable and self._durable < end):
                return
            try:
                await asyncio.to_thread(
                    self._journal.write, entries, new_round=new_round, durable=durable
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
            if not self._waiting:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._journal.clear)

    def _next_batch(self) -> tuple[int, list[EncodedReport]]:
        epoch = self._waiting[0][0]
        ours = takewhile(lambda entry: entry[0] == epoch, self._waiting[:LARGEST_BATCH])
        return epoch, _batch([report for _, report in ours])

    def _sent(self, count: int) -> None:
        del self._waiting[:count]
        self._first += count
        if not self._waiting:
            self._more.clear()
            self._changed.set()
            self._quiet.set()

    async def _answer(self, epoch: int, reports: Sequence[EncodedReport]) -> ReportAnswer:
        encoded = [report.report for report in reports]
        return await retrying(
            lambda: self._api.report(epoch, encoded), REPORT_POLICY, on_failure=_log_first_failure
        )

    async def _send(self, epoch: int, reports: Sequence[EncodedReport]) -> None:
        answer = await self._answer(epoch, reports)
        keys = tuple(report.key for report in reports)
        for key, status in zip(keys, answer.statuses, strict=True):
            if status in (ReportStatus.SUPERSEDED, ReportStatus.UNKNOWN):
                log.warning(
                    "report.superseded",
                    extra={"task_id": key.task_id, "attempt": key.attempt, "status": status},
                )
        if acknowledged := self._subscribers.get(epoch):
            acknowledged(Reported(keys, answer.standing))


def _log_first_failure(error: MitosisError, failures: int, pause: float) -> None:
    del pause
    if failures == 0:
        log.warning("reports.not_acknowledged", extra={"reason": error.message})


def _batch(reports: Sequence[EncodedReport]) -> list[EncodedReport]:
    """Return the first reports, as many as one call carries: up to LARGEST_BATCH_BYTES, at least one."""
    sizes = accumulate(len(report.report) for report in reports)
    count = sum(1 for _ in takewhile(lambda size: size <= LARGEST_BATCH_BYTES, sizes))
    return list(reports[: max(1, count)])
