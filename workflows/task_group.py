"""The workflow of one task group: observe, decide, act or wait. PostgreSQL keeps its state.

Signals ``poke``, and ``close``, ``reopen``, ``cancel``, ``complete`` as signals and as updates. An update
returns the group after it, or fails with the error code as its type; a signal that is not allowed, or whose
argument is wrong, changes nothing and is named in the log and in the current details.
``temporal workflow cancel`` is the cancel verb.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn, assert_never

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from activities.task_groups import TaskGroupActivities
    from mitosis.contracts.control import (
        Cancel,
        Close,
        Complete,
        GroupSummary,
        GroupView,
        Reopen,
        TaskGroupInput,
        VerbRequest,
    )
    from mitosis.contracts.errors import InvalidRequest, TemporalUnavailable
    from workflows.decisions import (
        CloseIfInactive,
        Discard,
        EndAfterFailedSetups,
        Finalize,
        Finish,
        GroupStep,
        Settle,
        Wait,
        group_step,
    )
    from workflows.ensuring import ensure, quiet
    from workflows.options import in_order, with_database
    from workflows.poke_loop import PokeLoop
    from workflows.shown_names import show_names
    from workflows.verbs import Verb, VerbQueue, read_verb
    from workflows.visibility import (
        Attributes,
        changes,
        group_attributes,
        group_details,
        group_names,
    )

SIGNALS = ("poke", "close", "reopen", "cancel", "complete")
CALM_FIRST = "too many messages: the workflow continues as new first; send the update again"
MOST_SHOWN = 300
"""Characters of a refusal in the details."""


@workflow.defn(name="TaskGroupWorkflow")
class TaskGroupWorkflow:
    """One task group, from its creation until it is settled. Result: a :class:`GroupSummary`."""

    @workflow.init
    def __init__(self, given: TaskGroupInput) -> None:
        self._given = given
        self._pokes = PokeLoop()
        self._verbs = VerbQueue()
        self._executing = 0
        self._after_verb: GroupView | None = None
        self._views = 0
        self._one_verb_at_a_time = asyncio.Lock()
        self._shown: Attributes = {}
        self._refused = given.refused
        self._refuses_updates_when_long = False
        self._view: GroupView | None = None
        self._why = ""

    @workflow.run
    async def run(self, given: TaskGroupInput) -> GroupSummary:
        loop = asyncio.create_task(self._live())
        tasks: list[asyncio.Task[None]] = []  # asyncio keeps only weak references to tasks
        self._refuses_updates_when_long = quiet()
        if self._refuses_updates_when_long:
            tasks.append(asyncio.create_task(self._execute_verbs()))
        while True:
            try:
                return await asyncio.shield(loop)
            except asyncio.CancelledError:
                if loop.cancelled():
                    raise
                verb = Cancel(reason="temporal workflow cancel")
                if quiet():
                    self._verbs.put(verb)
                else:
                    tasks.append(asyncio.create_task(self._quietly(verb)))

    async def _live(self) -> GroupSummary:
        view = await self._observe()
        while True:
            view = await self._news() or view
            step = group_step(view)
            self._show(view, step)
            match step:
                case Finish():
                    await self._finish_verbs()
                    if not self._anything_new():
                        return _summary(view)
                case Wait():
                    view = await self._wait(step, view)
                case _:
                    await self._continue_as_new_if_due()
                    if await self._pokes.backoff_before(
                        step, view, view.standing, self._is_after_verb
                    ):
                        view = await self._act(step)

    def _is_after_verb(self) -> bool:
        return self._after_verb is not None

    def _anything_new(self) -> bool:
        return self._pokes.poked or self._is_after_verb()

    async def _news(self) -> GroupView | None:
        """Return the view after what has happened since the last one; None if nothing has."""
        after_verb, self._after_verb = self._after_verb, None
        return await self._observe() if self._pokes.poked else after_verb

    async def _observe(self) -> GroupView:
        self._views += 1
        self._pokes.look()
        self._after_verb = None
        return await ensure(
            TaskGroupActivities.observe, self._given.task_group_id, "observe the group"
        )

    async def _wait(self, step: Wait, view: GroupView) -> GroupView:
        await self._continue_as_new_if_due(earlier=True)
        if await self._pokes.wait(step, view.standing, self._is_after_verb):
            return view
        return await (self._act(step.then) if step.then else self._observe())

    async def _act(
        self, step: CloseIfInactive | Discard | EndAfterFailedSetups | Finalize | Settle
    ) -> GroupView:
        group = self._given.task_group_id
        self._views += 1
        match step:
            case CloseIfInactive():
                return await ensure(
                    TaskGroupActivities.close_if_inactive, group, "close if still inactive"
                )
            case Discard():
                await workflow.execute_activity_method(
                    TaskGroupActivities.discard, group, **with_database("cancel unclaimed tasks")
                )
                return await self._observe()
            case EndAfterFailedSetups():
                return await ensure(
                    TaskGroupActivities.end_after_failed_setups,
                    group,
                    "setup failed on every host: end",
                )
            case Finalize():
                return await ensure(
                    TaskGroupActivities.finalize, group, "closed and drained: complete"
                )
            case Settle():
                return await ensure(TaskGroupActivities.settle, group, "nothing is left: settle")
            case never:
                assert_never(never)

    def _show(self, view: GroupView, step: GroupStep) -> None:
        """Show the state and the next step in Temporal's own tools."""
        self._why = step.why if isinstance(step, Wait) else type(step).__name__
        self._view = view
        self._describe()
        if view.exists:
            attributes = group_attributes(view)
            if updates := changes(self._shown, attributes):
                workflow.upsert_search_attributes(updates)
            self._shown = attributes
            show_names(group_names(view))

    async def _continue_as_new_if_due(self, *, earlier: bool = False) -> None:
        """Continue as new once no verb is in progress; ``earlier`` versions do it only before a wait."""
        if not (quiet() or earlier) or not self._pokes.should_continue_as_new():
            return
        await self._finish_verbs()
        workflow.continue_as_new(self._given.model_copy(update={"refused": self._refused}))

    async def _finish_verbs(self) -> None:
        await workflow.wait_condition(
            lambda: (
                workflow.all_handlers_finished() and not self._executing and not len(self._verbs)
            )
        )

    async def _execute_verbs(self) -> None:
        """Execute the verbs one by one in the order of their arrival."""
        while True:
            await workflow.wait_condition(lambda: len(self._verbs) > 0)
            pending, views = self._verbs.take(), self._views
            try:
                view = await self._apply(pending.verb)
            except FailureError as error:
                if pending.answer is None:
                    code = error.type if isinstance(error, ApplicationError) else None
                    self._refuse(f"signal {pending.verb.kind}", error.message, code)
                else:
                    pending.answer.set_exception(error)
            else:
                if views == self._views:
                    self._after_verb = view
                else:  # the loop may have a later view
                    self._pokes.poke()
                if pending.answer is not None:
                    pending.answer.set_result(view)

    async def _apply(self, verb: Verb) -> GroupView:
        """Execute a verb and return the group after it.

        Raises:
            ApplicationError: the store refused it; ``type`` is the code.
        """
        self._executing += 1
        try:
            return await workflow.execute_activity_method(
                TaskGroupActivities.apply,
                VerbRequest(task_group_id=self._given.task_group_id, verb=verb),
                **in_order(verb.kind),
            )
        except ActivityError as error:
            _raise_cause(error)
        finally:
            self._executing -= 1

    async def _update(self, kind: type[Verb], given: Any) -> GroupView:
        verb = read_verb(kind, given, strict=False)  # its validator was strict
        if not quiet():
            return await self._do(verb)
        answer: asyncio.Future[GroupView] = asyncio.get_running_loop().create_future()
        self._verbs.put(verb, answer)
        return await answer

    async def _signal(self, kind: type[Verb], given: Any) -> None:
        name = kind.__name__.lower()
        try:
            verb = read_verb(kind, given, strict=quiet())
        except InvalidRequest as error:
            self._refuse(f"signal {name}", str(error), error.code)
            return
        if not quiet():
            await self._quietly(verb)
        elif not self._verbs.put_signal(verb):
            self._refuse(f"signal {name}", "too many verbs wait for their turn", "queue_full")

    def _refuse(self, message: str, reason: str, code: str | None) -> None:
        """Say in the log and in the details that a message changed nothing, and why."""
        refused = f"{message}: {reason}"[:MOST_SHOWN]
        if refused != self._refused:  # a flood of one message is one line in the log
            facts = {"what": message, "code": code, "reason": reason}
            workflow.logger.warning("task_group.verb_refused", extra=facts)
        self._refused = refused
        self._describe()

    def _describe(self) -> None:
        if self._view is not None:
            details = group_details(self._view, self._why, self._refused)
            workflow.set_current_details(details)

    def message_received(self) -> None:
        """Count a message; called before its handler (``workflows.interception``)."""
        self._pokes.received()

    def message_refused(self, message: str, reason: str) -> None:
        """Say that a message had no effect; called instead of its handler."""
        self._refuse(message, reason, InvalidRequest.code)

    async def _do(self, verb: Verb) -> GroupView:
        """Execute a verb, in a run of an earlier version."""
        self._executing += 1
        try:
            async with self._one_verb_at_a_time:
                return await self._apply(verb)
        finally:
            self._executing -= 1
            self._pokes.poke()

    async def _quietly(self, verb: Verb) -> None:
        """Execute a verb of a signal, in a run of an earlier version."""
        try:
            await self._do(verb)
        except ApplicationError as error:
            self._refuse(f"signal {verb.kind}", error.message, error.type)

    @workflow.signal(description="Look again: something has changed in PostgreSQL.")
    def poke(self) -> None:
        self._pokes.poke()

    @workflow.signal(dynamic=True)
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        del args
        self._refuse(f"signal {name}", f"there is no such signal, only {', '.join(SIGNALS)}", None)

    @workflow.signal(name="close", description="Accept no more tasks; complete when they are done.")
    async def close_signal(self, req: Any = None) -> None:
        await self._signal(Close, req)

    @workflow.signal(name="reopen", description="Accept tasks again.")
    async def reopen_signal(self, req: Any = None) -> None:
        await self._signal(Reopen, req)

    @workflow.signal(name="cancel", description="End the group; nothing more is claimed.")
    async def cancel_signal(self, req: Any = None) -> None:
        await self._signal(Cancel, req)

    @workflow.signal(name="complete", description="Close and complete; force cancels what is left.")
    async def complete_signal(self, req: Any = None) -> None:
        await self._signal(Complete, req)

    @workflow.update(name="close", description="As the signal; returns the group after it.")
    async def close_update(self, req: Any = None) -> GroupView:
        return await self._update(Close, req)

    @workflow.update(name="reopen", description="As the signal; returns the group after it.")
    async def reopen_update(self, req: Any = None) -> GroupView:
        return await self._update(Reopen, req)

    @workflow.update(name="cancel", description="As the signal; returns the group after it.")
    async def cancel_update(self, req: Any = None) -> GroupView:
        return await self._update(Cancel, req)

    @workflow.update(name="complete", description="As the signal; returns the group after it.")
    async def complete_update(self, req: Any = None) -> GroupView:
        return await self._update(Complete, req)

    @close_update.validator
    def check_close(self, req: Any = None) -> None:
        self._check(Close, req)

    @reopen_update.validator
    def check_reopen(self, req: Any = None) -> None:
        self._check(Reopen, req)

    @cancel_update.validator
    def check_cancel(self, req: Any = None) -> None:
        self._check(Cancel, req)

    @complete_update.validator
    def check_complete(self, req: Any = None) -> None:
        self._check(Complete, req)

    def _check(self, kind: type[Verb], given: Any) -> None:
        """Refuse a wrong update, or one that comes too soon; it leaves nothing in the history."""
        if self._refuses_updates_when_long and self._pokes.must_calm():
            raise ApplicationError(CALM_FIRST, type=TemporalUnavailable.code)
        try:
            read_verb(kind, given)
        except InvalidRequest as error:
            raise ApplicationError(
                str(error), error.facts, type=error.code, non_retryable=True
            ) from None


def _raise_cause(error: ActivityError) -> NoReturn:
    """Raise the refusal of the store instead of "activity failed"; its code is the type of the failure."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        raise error
    raise ApplicationError(
        cause.message, *cause.details, type=cause.type, non_retryable=True
    ) from error


def _summary(view: GroupView) -> GroupSummary:
    return GroupSummary(
        task_group_id=view.task_group_id,
        name=view.name,
        state=view.state,
        result=view.result,
        total=view.total,
        succeeded=view.succeeded,
        failed=view.failed,
        cancelled=view.cancelled,
        seconds=view.settled_after_seconds,
    )
