"""What wakes a workflow's loop, how long it sleeps, and when its history has become long enough.

Workflow code: deterministic, no I/O.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from temporalio import workflow

from workflows.options import SUMMARY_LENGTH

HANDLED_BEFORE_CONTINUE_AS_NEW = 150
"""About 1,500 events, replayed in 0.5 s: a new worker that takes over several workflows at a time must
decide each within ``WORKFLOW_TASK_WITHIN``. The server's own limits are 10,000 signals, 51,200 events."""
LONGEST_SLEEP_SECONDS = 30 * 86_400.0
"""A longer time is slept in parts: a number from a database must never overflow a timer."""
SHORTEST_SLEEP_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 60.0
ONLY_STEPS_COUNT = "only-deeds-count"
"""Id of a patch: before it, a poke at the wrong moment held a step up, longer each time."""


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
        """Whether somebody asked to look since the last :meth:`look`."""
        return self._poked

    def poke(self) -> None:
        """Ask the loop to look again."""
        self._handled += 1
        self._poked = True

    def look(self) -> None:
        """Call before observing: a poke that arrives during the observation counts again."""
        self._poked = False

    async def wait(
        self, seconds: float | None, why: str, until: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait for a poke or ``until``. False: the time was over first."""
        self._repeats, self._last = 0, None
        return await self._sleep(seconds, why, until)

    async def backoff_before(self, step: object, until: Callable[[], bool] = lambda: False) -> bool:
        """Call before doing something: whether to do it now, or to look again first.

        Two sides that disagree (a decision and a guard in PostgreSQL) must not spin: while the same step
        changes nothing, each pause since it was done last is longer. Only what was done counts, not what a
        poke has put off; and a pause that a poke has cut does not begin anew.
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
        """Whether this run should continue as new at the next quiet moment."""
        if self._handled >= HANDLED_BEFORE_CONTINUE_AS_NEW:
            return True
        return workflow.info().is_continue_as_new_suggested()
