"""The loop of a workflow: what wakes it, how long it sleeps, and when it should continue as new.

Workflow code: deterministic, no I/O. Its state does not grow with the number of messages.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow

from workflows.decisions import Wait
from workflows.earlier import EarlierBackoff
from workflows.ensuring import quiet
from workflows.options import SUMMARY_LENGTH
from workflows.repetition import RepeatedLook, RepeatedStep

MESSAGES_BEFORE_CONTINUE_AS_NEW = 150
"""Signals and updates. A server configured for us refuses either after 2,000 of one run."""
EVENTS_BEFORE_CONTINUE_AS_NEW = 1500
"""Replayed in 0.5 s: a new worker that takes over several workflows at once must decide each within
``WORKFLOW_TASK_WITHIN``. The server ends a run with 51,200 events."""
CALM_SECONDS = 1.0
"""A run continues as new after this time without a message: the server refuses the step if one arrives at the
same time, and the worker then replays the whole history."""
REFUSE_UPDATES_AFTER_EVENTS = 2 * EVENTS_BEFORE_CONTINUE_AS_NEW
"""So that a steady flow of updates cannot keep a run from its end."""
SHORTEST_CALM_SECONDS = 0.05
CALM_HALVES_EACH_EVENTS = 300
"""A longer history demands less: after this many events more, half the time without a message is enough."""
LONGEST_STORM_SECONDS = 10.0
"""So often, at least, a run without calm looks for it."""
LONGEST_SLEEP_SECONDS = 30 * 86_400.0
"""Longer waits are split: a number from a database must never overflow a timer."""
SHORTEST_SLEEP_SECONDS = 0.05


def never() -> bool:
    """Return False: nothing but a poke ends the wait."""
    return False


def calm_seconds(events: int) -> float:
    """Return the seconds without a message after which a run of ``events`` events continues as new."""
    surplus = max(events - EVENTS_BEFORE_CONTINUE_AS_NEW, 0)
    part = math.exp2(-surplus / CALM_HALVES_EACH_EVENTS)
    return max(CALM_SECONDS * part, SHORTEST_CALM_SECONDS)


class PokeLoop:
    """The messages of one workflow. A poke says only: look again."""

    def __init__(self) -> None:
        self._poked = False
        self._messages = 0
        self._quiet = False
        self._calm = False
        self._calm_used = False
        self._waits_for_calm: asyncio.Task[None] | None = None
        self._step = RepeatedStep()
        self._look = RepeatedLook()
        self._earlier = EarlierBackoff()

    @property
    def poked(self) -> bool:
        """Whether a poke has arrived since the last :meth:`look`."""
        return self._poked

    def received(self) -> None:
        """Count a message of any kind."""
        self._messages += 1

    def poke(self) -> None:
        """Make the loop look again."""
        self._earlier.handled += 1
        self._poked = True

    def look(self) -> None:
        """Mark all pokes as seen. Call it before observing: a poke during the observation then counts."""
        self._poked = False

    async def wait(
        self, step: Wait, standing: object = None, until: Callable[[], bool] = never
    ) -> bool:
        """Wait for a poke or ``until``; return False if the time of ``step`` passes first.

        Looks without news become rarer while ``standing`` stays the same.
        """
        self._quiet = quiet()
        if not self._quiet:
            self._earlier.reset()
            return await self._sleep(step.until_look, step.why, until)
        subject = (step.why, standing)
        look = step.look_after
        if look is not None:
            look = self._look.seconds(subject, look)
        left = [seconds for seconds in (step.seconds, look) if seconds is not None]
        if await self._sleep(min(left, default=None), step.why, until):
            self._step.reset()
            self._look.reset()
            return True
        self._look.nothing_new(subject)
        return False

    async def backoff_before(
        self, step: object, view: object, standing: object, until: Callable[[], bool] = never
    ) -> bool:
        """Back off before a repeated ``step``; return whether to execute it now or to look again first.

        A decision and a guard in PostgreSQL that disagree must not spin: while the same step changes
        nothing but times, each pause is longer. A poke ends the pause and starts over.
        """
        if not quiet():
            return await self._backoff_before_quiet_histories((step, view), until)
        if self._poked:
            return False
        pause = self._step.pause((step, standing), workflow.time())
        if pause and await self._sleep(pause, "nothing changed", until):
            self._step.reset()
            return False
        self._step.executed((step, standing), workflow.time())
        return True

    async def _backoff_before_quiet_histories(
        self, step: object, until: Callable[[], bool]
    ) -> bool:
        earlier = self._earlier
        if self._poked and earlier.only_steps_count():
            return False
        if earlier.repeats(step):
            await self._sleep(earlier.pause(), "nothing changed", until)
            if self._poked and earlier.only_steps_count():
                return False
        earlier.executed(step)
        return not self._poked

    async def _sleep(self, seconds: float | None, why: str, until: Callable[[], bool]) -> bool:
        if seconds is not None:
            seconds = min(max(seconds, SHORTEST_SLEEP_SECONDS), LONGEST_SLEEP_SECONDS)
        try:
            await workflow.wait_condition(
                lambda: self._poked or until() or self._is_due(),
                timeout=None if seconds is None else timedelta(seconds=seconds),
                timeout_summary=None if seconds is None else why[:SUMMARY_LENGTH],
            )
        except TimeoutError:
            return False
        return True

    def _is_due(self) -> bool:
        """Return whether to look at the length of the history now."""
        many = self._messages >= MESSAGES_BEFORE_CONTINUE_AS_NEW
        unseen = self._quiet and many and self._waits_for_calm is None
        return unseen or (self._calm and not self._calm_used)

    def is_long(self) -> bool:
        """Return whether the history of this run is long enough to continue as new."""
        info = workflow.info()
        if not quiet():
            return self._earlier.is_long() or info.is_continue_as_new_suggested()
        return (
            self._messages >= MESSAGES_BEFORE_CONTINUE_AS_NEW
            or info.get_current_history_length() >= EVENTS_BEFORE_CONTINUE_AS_NEW
            or info.is_continue_as_new_suggested()
        )

    def must_calm(self) -> bool:
        """Return whether the history is so long that updates are refused until the next run begins."""
        return workflow.info().get_current_history_length() > REFUSE_UPDATES_AFTER_EVENTS

    def should_continue_as_new(self) -> bool:
        """Return whether to continue as new now: the history is long, and no message has come for a while.

        While it is not, the end of the storm will end a wait.
        """
        if not self.is_long():
            return False
        if not quiet():
            return True
        if self._waits_for_calm is None:
            self._waits_for_calm = asyncio.create_task(self._find_calm())
        self._calm_used = self._calm
        return self._calm

    async def _find_calm(self) -> None:
        storm = CALM_SECONDS
        while not await self._is_calm():
            await asyncio.sleep(storm)
            storm = min(2 * storm, LONGEST_STORM_SECONDS)
        self._calm = True

    async def _is_calm(self) -> bool:
        before = self._messages
        await asyncio.sleep(calm_seconds(workflow.info().get_current_history_length()))
        return self._messages == before
