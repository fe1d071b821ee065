"""The loop of a workflow: what wakes it, how long it sleeps, and when it should continue as new.

Workflow code: deterministic, no I/O.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from temporalio import workflow

from workflows.options import SUMMARY_LENGTH

HANDLED_BEFORE_CONTINUE_AS_NEW = 150
"""About 1,500 events, replayed in 0.5 s: a new worker that takes over several workflows at once must
decide each within ``WORKFLOW_TASK_WITHIN``. The server's own limits are 10,000 signals and 51,200 events."""
LONGEST_SLEEP_SECONDS = 30 * 86_400.0
"""Longer waits are split: a number from a database must never overflow a timer."""
SHORTEST_SLEEP_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 60.0
ONLY_STEPS_COUNT = "only-deeds-count"
"""Id of a patch, stored in histories. Before it, a poke during the backoff lengthened the backoff."""


class PokeLoop:
    """The pokes of one workflow. A poke says only: look again."""

    def __init__(self) -> None:
        self._handled = 0
        self._poked = False
        self._repeats = 0
        self._last: object = None
        self._done_at = datetime.min.replace(tzinfo=UTC)

    @property
    def poked(self) -> bool:
        """Whether a poke has arrived since the last :meth:`look`."""
        return self._poked

    def poke(self) -> None:
        """Make the loop look again."""
        self._handled += 1
        self._poked = True

    def look(self) -> None:
        """Mark all pokes as seen. Call it before observing: a poke during the observation then counts."""
        self._poked = False

    async def wait(
        self, seconds: float | None, why: str, until: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait for a poke or ``until``; return False if ``seconds`` pass first."""
        self._repeats, self._last = 0, None
        return await self._sleep(seconds, why, until)

    async def backoff_before(self, step: object, until: Callable[[], bool] = lambda: False) -> bool:
        """Back off before a repeated ``step``; return whether to execute it now or to look again first.

        A decision and a guard in PostgreSQL that disagree must not spin: while the same step changes
        nothing, each pause is longer. Only executed steps lengthen the backoff; a poke that interrupts the
        pause does not restart it.
        """
        if self._interrupted():
            return False
        repeats = self._repeats + 1 if step == self._last else 0
        if repeats:
            pause = min(2.0 ** (repeats - 1), LONGEST_PAUSE_SECONDS)
            if workflow.patched(ONLY_STEPS_COUNT):
                pause -= (workflow.now() - self._done_at).total_seconds()
            await self._sleep(pause, "nothing changed", until)
            if self._interrupted():
                return False
        self._repeats, self._last, self._done_at = repeats, step, workflow.now()
        return not self._poked

    def _interrupted(self) -> bool:
        return self._poked and workflow.patched(ONLY_STEPS_COUNT)

    async def _sleep(self, seconds: float | None, why: str, until: Callable[[], bool]) -> bool:
        if seconds is not None:
            seconds = min(max(seconds, SHORTEST_SLEEP_SECONDS), LONGEST_SLEEP_SECONDS)
        try:
            await workflow.wait_condition(
                lambda: self._poked or until(),
                timeout=None if seconds is None else timedelta(seconds=seconds),
                timeout_summary=None if seconds is None else why[:SUMMARY_LENGTH],
            )
        except TimeoutError:
            return False
        return True

    def should_continue_as_new(self) -> bool:
        """Return whether the history of this run is long enough to continue as new."""
        if self._handled >= HANDLED_BEFORE_CONTINUE_AS_NEW:
            return True
        return workflow.info().is_continue_as_new_suggested()
