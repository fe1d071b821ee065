"""The workflow of one run of a job: it watches the run, keeps its time limits, and takes cancels.

PostgreSQL carries the run on from step to step; the workflow is woken when the run starts, is stopped, ends,
or has a new time limit. No history contains a task. Signals: ``poke`` and ``cancel``; ``temporal workflow
cancel`` is the verb cancel.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.runs import RunActivities
    from mitosis.contracts.errors import InvalidRequest
    from mitosis.contracts.run_control import (
        Cancel,
        RunInput,
        RunSituation,
        RunSummary,
        RunVerbRequest,
    )
    from workflows.decisions import Wait
    from workflows.ensuring import ensure
    from workflows.options import in_order
    from workflows.poke_loop import PokeLoop
    from workflows.shown_names import show_names
    from workflows.verbs import read_verb
    from workflows.visibility import (
        Attributes,
        changes,
        run_attributes,
        run_details,
        run_names,
    )

SIGNALS = ("poke", "cancel")
MOST_CANCELS = 20
"""Cancels that wait for their turn; more are refused."""
MOST_SHOWN = 300
AFTER_A_LIMIT_SECONDS = 1.0
"""Its time has passed and another process holds the run, which it will carry on."""


@workflow.defn(name="RunWorkflow")
class RunWorkflow:
    """One run, until it has ended. Result: a :class:`RunSummary`."""

    @workflow.init
    def __init__(self, given: RunInput) -> None:
        self._given = given
        self._pokes = PokeLoop()
        self._cancels: list[Cancel] = []
        self._refused = given.refused
        self._shown: Attributes = {}
        self._run: RunSituation | None = None

    @workflow.run
    async def run(self, given: RunInput) -> RunSummary:
        loop = asyncio.create_task(self._live())
        while True:
            try:
                return await asyncio.shield(loop)
            except asyncio.CancelledError:
                if loop.cancelled():
                    raise
                self._put(Cancel(reason="temporal workflow cancel"))

    async def _live(self) -> RunSummary:
        while True:
            if self._cancels:
                await self._cancel(self._cancels.pop(0))
            self._pokes.look()
            run = await ensure(RunActivities.observe, self._given.run_id, "carry on the run")
            self._show(run)
            if self._cancels:
                continue
            if run.is_over and not self._pokes.poked:
                return RunSummary(
                    run_id=self._given.run_id,
                    state=run.state if run.exists else None,
                    tasks_created=run.tasks_created,
                    tasks_failed=run.tasks_failed,
                )
            if self._pokes.should_continue_as_new():
                workflow.continue_as_new(self._given.model_copy(update={"refused": self._refused}))
            await self._pokes.wait(_until(run.next_in_seconds), None, lambda: bool(self._cancels))

    async def _cancel(self, verb: Cancel) -> None:
        try:
            await workflow.execute_activity_method(
                RunActivities.cancel,
                RunVerbRequest(run_id=self._given.run_id, verb=verb),
                **in_order("cancel"),
            )
        except ActivityError as error:
            cause = error.cause
            if not isinstance(cause, ApplicationError):
                raise
            self._refuse("cancel", cause.message)

    def _put(self, verb: Cancel) -> None:
        """Append a cancel to those that wait, unless it is the last of them again."""
        if self._cancels and self._cancels[-1] == verb:
            return
        if len(self._cancels) >= MOST_CANCELS:
            self._refuse("signal cancel", "too many cancels wait for their turn")
            return
        self._cancels.append(verb)

    def _show(self, run: RunSituation) -> None:
        """Show the state in Temporal's own tools."""
        self._run = run
        self._describe()
        if run.exists:
            attributes = run_attributes(run)
            if updates := changes(self._shown, attributes):
                workflow.upsert_search_attributes(updates)
            self._shown = attributes
            show_names(run_names(run))

    def _refuse(self, message: str, reason: str) -> None:
        """Say in the log and in the details that a message changed nothing, and why."""
        refused = f"{message}: {reason}"[:MOST_SHOWN]
        if refused != self._refused:
            workflow.logger.warning("run.verb_refused", extra={"what": message, "reason": reason})
        self._refused = refused
        self._describe()

    def _describe(self) -> None:
        if self._run is not None:
            workflow.set_current_details(run_details(self._run, self._refused))

    @workflow.signal(description="Look again: something has changed in PostgreSQL.")
    def poke(self) -> None:
        self._pokes.poke()

    @workflow.signal(name="cancel", description="Cancel the rest of the run.")
    def cancel_signal(self, req: Any = None) -> None:
        try:
            self._put(read_verb(Cancel, req))
        except InvalidRequest as error:
            self._refuse("signal cancel", str(error))

    @workflow.signal(dynamic=True)
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        del args
        self._refuse(f"signal {name}", f"there is no such signal, only {', '.join(SIGNALS)}")

    def message_received(self) -> None:
        """Count a message; called before its handler (``workflows.interception``)."""
        self._pokes.received()

    def message_refused(self, message: str, reason: str) -> None:
        """Say that a message had no effect; called instead of its handler."""
        self._refuse(message, reason)


def _until(seconds: float | None) -> Wait:
    if seconds is not None and seconds <= 0:
        seconds = AFTER_A_LIMIT_SECONDS
    return Wait("next time limit", seconds)
