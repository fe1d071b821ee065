"""Holds reports that the API cannot take while it takes others (protocol P5).

Each is sent again with growing pauses; in the end its task ends without it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from mitosis.concurrency import wait_event
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import MitosisError
from mitosis.execution.backoff import POSTPONED_POLICY, POSTPONED_TRIES, tries
from mitosis.execution.journal import Entry
from mitosis.execution.report_sender import result_refused
from mitosis.fates import Fate, fate
from mitosis.ipc.messages import EncodedReport
from mitosis.retry_policy import Backoff

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Postponed:
    epoch: int
    report: EncodedReport
    error: MitosisError
    """The last one."""
    backoff: Backoff
    due: float
    shortened: bool = False
    """Whether the report is the small one that takes the place of the refused one."""
    settles: bool = False
    """Whether it is refused, so that its task ends within seconds."""


class PostponedReports:
    """Holds them by attempt, and sends each alone when it is due."""

    def __init__(
        self,
        send: Callable[[int, Sequence[EncodedReport]], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        """Send nothing before :meth:`run`.

        Args:
            send: sends reports; passes those that have no answer to :meth:`add` again.
            changed: called when a report has left.
        """
        self._send = send
        self._changed = changed
        self._held: dict[AttemptKey, _Postponed] = {}
        self._failed: set[AttemptKey] = set()
        self._has_new = False
        self._more = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def entries(self) -> list[Entry]:
        """Return the reports, as the journal takes them."""
        return [(held.epoch, held.report) for held in self._held.values()]

    def take_new(self) -> bool:
        """Return whether a report has come since the last call."""
        new, self._has_new = self._has_new, False
        return new

    def trouble(self) -> str | None:
        """Return what is repeated, why, when next and what ends it; the same text until it changes."""
        if not self._held:
            return None
        held = min(self._held.values(), key=lambda one: one.due)
        failures, limit = held.backoff.failures, self._limit(held)
        return (
            f"{len(self._held)} reports are not taken; that of task {held.report.key.task_id}, sent"
            f" {failures} of {limit} times: {_printable(held.error)}; sent again within"
            f" {POSTPONED_POLICY.longest_seconds / 60:g} min, then the task ends as result_refused"
        )

    @property
    def settling(self) -> bool:
        """Whether the task of a report ends within seconds, with or without it."""
        return any(held.settles for held in self._held.values())

    def add(self, entry: Entry, error: MitosisError) -> None:
        """Hold a report that has failed, once more or for the first time."""
        epoch, report = entry
        held = self._held.get(report.key)
        if held is None:
            held = _Postponed(epoch, report, error, Backoff(POSTPONED_POLICY), 0.0)
            self._held[report.key] = held
            self._has_new = True
        self._failed.add(report.key)
        pause = held.backoff.next_pause(error)
        held.due = self._loop.time() + pause
        held.error = error
        held.settles = fate(error) is Fate.CALL_REFUSED and not held.shortened
        self._more.set()
        if held.backoff.failures >= self._limit(held):
            self._give_up(held, error)
            return
        log.warning(
            "report.postponed",
            extra={
                "task_id": report.key.task_id,
                "attempt": report.key.attempt,
                "tries": held.backoff.failures,
                "pause_seconds": round(pause, 1),
                "reason": error.message[:500],
            },
        )

    async def run(self) -> None:
        """Send what is due, for ever.

        Raises:
            MitosisError: the API refuses this agent for good.
        """
        while True:
            self._more.clear()
            if not self._held:
                await self._more.wait()
                continue
            held = min(self._held.values(), key=lambda one: one.due)
            left = held.due - self._loop.time()
            if left > 0:
                await wait_event(self._more, left)
                continue
            self._failed.discard(held.report.key)
            await self._send(held.epoch, [held.report])
            if held.report.key not in self._failed:
                self._forget(held)

    def _limit(self, held: _Postponed) -> int:
        return POSTPONED_TRIES if held.shortened else tries(held.error)

    def _give_up(self, held: _Postponed, error: MitosisError) -> None:
        """End the task without its result; if not even that is taken, without a report."""
        if held.shortened:
            log.error(
                "report.given_up",
                extra={
                    "task_id": held.report.key.task_id,
                    "attempt": held.report.key.attempt,
                    "reason": error.message[:500],
                },
            )
            self._forget(held)
        else:
            held.report, held.shortened = result_refused(held.report, error), True
            held.backoff.reset()
            held.due = self._loop.time()

    def _forget(self, held: _Postponed) -> None:
        self._held.pop(held.report.key, None)
        self._changed()


def _printable(error: MitosisError) -> str:
    return error.message[:500].replace("\0", "")
