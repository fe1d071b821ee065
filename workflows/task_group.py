"""The workflow of one task group: observe, decide, act or wait. PostgreSQL keeps its state.

Signals ``poke``, and ``close``, ``reopen``, ``cancel``, ``complete`` as signals and as updates. An update
returns the group after it, or fails with the error code as its type; a signal that is not allowed is
logged. ``temporal workflow cancel`` is the cancel verb.
"""

import asyncio
from typing import NoReturn, TypeAlias, assert_never

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

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
    from workflows.decisions import (
        CloseIfInactive,
        Discard,
        Finalize,
        Finish,
        GroupStep,
        Settle,
        Wait,
        group_step,
    )
    from workflows.options import in_order, with_database
    from workflows.poke_loop import PokeLoop
    from workflows.visibility import Attributes, changes, group_attributes, group_details

Verb: TypeAlias = Close | Reopen | Cancel | Complete


@workflow.defn(name="TaskGroupWorkflow")
class TaskGroupWorkflow:
    """One task group, from its creation until it is settled. Result: a :class:`GroupSummary`."""

    @workflow.init
    def __init__(self, given: TaskGroupInput) -> None:
        self._given = given
        self._pokes = PokeLoop()
        self._one_verb_at_a_time = asyncio.Lock()
        self._verbs_under_way = 0
        self._shown: Attributes = {}

    @workflow.run
    async def run(self, given: TaskGroupInput) -> GroupSummary:
        loop = asyncio.create_task(self._live())
        cancels: list[asyncio.Task[None]] = []  # asyncio keeps only weak references to tasks
        while True:
            try:
                return await asyncio.shield(loop)
            except asyncio.CancelledError:
                if loop.cancelled():
                    raise
                verb = Cancel(reason="temporal workflow cancel")
                cancels.append(asyncio.create_task(self._quietly(verb)))

    async def _live(self) -> GroupSummary:
        view = await self._observe()
        while True:
            if self._pokes.poked:
                view = await self._observe()
            step = group_step(view)
            self._show(view, step)
            match step:
                case Finish():
                    await self._finish_handlers()
                    if not self._pokes.poked:
                        return _summary(view)
                case Wait():
                    view = await self._wait(step, view)
                case _:
                    if await self._pokes.backoff_before((step, view)):
                        view = await self._act(step)

    async def _observe(self) -> GroupView:
        self._pokes.look()
        return await workflow.execute_activity_method(
            TaskGroupActivities.observe,
            self._given.task_group_id,
            **with_database("observe the group"),
        )

    async def _wait(self, step: Wait, view: GroupView) -> GroupView:
        if self._pokes.should_continue_as_new():
            await self._finish_handlers()
            workflow.continue_as_new(self._given)
        if await self._pokes.wait(step.seconds, step.why):
            return view
        return await (self._act(step.then) if step.then else self._observe())

    async def _act(self, step: CloseIfInactive | Discard | Finalize | Settle) -> GroupView:
        group = self._given.task_group_id
        match step:
            case CloseIfInactive():
                return await workflow.execute_activity_method(
                    TaskGroupActivities.close_if_inactive,
                    group,
                    **with_database("close if still inactive"),
                )
            case Discard():
                await workflow.execute_activity_method(
                    TaskGroupActivities.discard, group, **with_database("cancel unclaimed tasks")
                )
                return await self._observe()
            case Finalize():
                return await workflow.execute_activity_method(
                    TaskGroupActivities.finalize,
                    group,
                    **with_database("closed and drained: complete"),
                )
            case Settle():
                return await workflow.execute_activity_method(
                    TaskGroupActivities.settle, group, **with_database("nothing is left: settle")
                )
            case never:
                assert_never(never)

    def _show(self, view: GroupView, step: GroupStep) -> None:
        """Show the state and the next step in Temporal's own tools."""
        why = step.why if isinstance(step, Wait) else type(step).__name__
        workflow.set_current_details(group_details(view, why))
        if view.exists:
            attributes = group_attributes(view)
            if updates := changes(self._shown, attributes):
                workflow.upsert_search_attributes(updates)
            self._shown = attributes

    async def _finish_handlers(self) -> None:
        await workflow.wait_condition(
            lambda: workflow.all_handlers_finished() and not self._verbs_under_way
        )

    async def _do(self, verb: Verb) -> GroupView:
        """Execute a verb. Verbs of one group keep their order.

        Raises:
            ApplicationError: the store refused it; ``type`` is the code.
        """
        self._verbs_under_way += 1
        try:
            async with self._one_verb_at_a_time:
                return await workflow.execute_activity_method(
                    TaskGroupActivities.apply,
                    VerbRequest(task_group_id=self._given.task_group_id, verb=verb),
                    **in_order(verb.kind),
                )
        except ActivityError as error:
            _raise_cause(error)
        finally:
            self._verbs_under_way -= 1
            self._pokes.poke()

    async def _quietly(self, verb: Verb) -> None:
        """Execute a verb of a signal, which has no answer; log a refusal."""
        try:
            await self._do(verb)
        except ApplicationError as error:
            workflow.logger.warning(
                "task_group.verb_refused",
                extra={"verb": verb.kind, "code": error.type, "reason": error.message},
            )

    @workflow.signal(description="Look again: something has changed in PostgreSQL.")
    def poke(self) -> None:
        self._pokes.poke()

    @workflow.signal(name="close", description="Accept no more tasks; complete when they are done.")
    async def close_signal(self, req: Close | None = None) -> None:
        await self._quietly(req or Close())

    @workflow.signal(name="reopen", description="Accept tasks again.")
    async def reopen_signal(self, req: Reopen | None = None) -> None:
        await self._quietly(req or Reopen())

    @workflow.signal(name="cancel", description="End the group; nothing more is claimed.")
    async def cancel_signal(self, req: Cancel | None = None) -> None:
        await self._quietly(req or Cancel())

    @workflow.signal(name="complete", description="Close and complete; force cancels what is left.")
    async def complete_signal(self, req: Complete | None = None) -> None:
        await self._quietly(req or Complete())

    @workflow.update(name="close", description="As the signal; returns the group after it.")
    async def close_update(self, req: Close | None = None) -> GroupView:
        return await self._do(req or Close())

    @workflow.update(name="reopen", description="As the signal; returns the group after it.")
    async def reopen_update(self, req: Reopen | None = None) -> GroupView:
        return await self._do(req or Reopen())

    @workflow.update(name="cancel", description="As the signal; returns the group after it.")
    async def cancel_update(self, req: Cancel | None = None) -> GroupView:
        return await self._do(req or Cancel())

    @workflow.update(name="complete", description="As the signal; returns the group after it.")
    async def complete_update(self, req: Complete | None = None) -> GroupView:
        return await self._do(req or Complete())


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
