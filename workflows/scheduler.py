"""The workflow that assigns hosts to groups: any number of pokes lead to one round in PostgreSQL."""

import math
from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from activities.managers import ManagerActivities
    from mitosis.contracts.control import AssignAnswer
    from workflows.decisions import Wait
    from workflows.ensuring import ensure_all
    from workflows.poke_loop import PokeLoop

ROUNDS_ON_TIME = 3
"""So many rounds without an offer start when the one before asked for them."""


@workflow.defn(name="SchedulerWorkflow")
class SchedulerWorkflow:
    """A singleton. Pokes that arrive during a round lead to exactly one more round."""

    @workflow.init
    def __init__(self) -> None:
        self._pokes = PokeLoop()
        self._rounds_without_offers = 0
        self._counts_from = 0.0
        """An earlier round is there to judge only."""

    @workflow.run
    async def run(self) -> None:
        while True:
            self._pokes.look()
            answer = await ensure_all(ManagerActivities.assign_round, "match hosts and groups")
            workflow.set_current_details(
                f"Last round: {answer.offered} offers, {answer.resignalled} offers sent again."
            )
            if self._pokes.should_continue_as_new():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new()
            await self._pokes.wait(self._next_round(answer), answer.resignalled)

    def _next_round(self, answer: AssignAnswer) -> Wait:
        """Wait for the next round. Rounds without an effect become rarer: a look in PostgreSQL backs them.

        Judgements have a time of their own: those that change nothing leave the others on time.
        """
        due, judged = answer.due_in_seconds, answer.judged_again_in_seconds
        if answer.offered:
            self._rounds_without_offers = 0
        elif workflow.time() >= self._counts_from:
            self._rounds_without_offers += 1
        if self._rounds_without_offers <= ROUNDS_ON_TIME:
            step = Wait("next round", due, look_after=judged)
        else:
            step = Wait("next round", look_after=_least(due, judged))
        self._counts_from = (
            0.0 if judged is None else workflow.time() + (math.inf if due is None else due)
        )
        return step

    @workflow.signal(description="Look again: something has changed in PostgreSQL.")
    def poke(self) -> None:
        self._rounds_without_offers = 0
        self._pokes.poke()

    @workflow.signal(dynamic=True)
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Ignore it; without this handler, Temporal keeps it in memory for ever."""

    def message_received(self) -> None:
        """Count a message (``workflows.interception``)."""
        self._pokes.received()

    def message_refused(self, message: str, reason: str) -> None:
        """Log a message that had no effect."""
        workflow.logger.warning("signal.dropped", extra={"what": message, "reason": reason})


def _least(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)
