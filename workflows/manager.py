"""The workflow of one host: observe, decide, act or wait. PostgreSQL keeps its lease and environments.

It watches what the host does through long activities on the host's own task queue, and goes on
looking at PostgreSQL meanwhile. An activity that ends in trouble proves nothing: the liveness clock of
the lease decides (protocol P4).
"""

from dataclasses import dataclass, replace
from typing import Literal, assert_never

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.host import HostActivities
    from activities.managers import ManagerActivities
    from mitosis.contracts.control import (
        HookOutcome,
        HostCommand,
        LeaseOutcome,
        ManagerInput,
        ManagerView,
        ReleaseRequest,
    )
    from mitosis.contracts.lifecycle import LeaseState
    from workflows.attention import Attention
    from workflows.decisions import (
        BACKSTOP_SECONDS,
        Abandon,
        Attached,
        Finish,
        HostActivity,
        HostKnowledge,
        LastWord,
        ManagerStep,
        Nudge,
        Release,
        StartHost,
        Wait,
        manager_step,
    )
    from workflows.hearing import Ended, last_word
    from workflows.options import on_host, with_database
    from workflows.visibility import Attributes, changes, manager_attributes, manager_details

Slot = Literal["lease", "cleaning"]
FIRST_HOLD_SECONDS = 1.0
LONGEST_HOLD_SECONDS = 60.0


@dataclass(slots=True)
class Watch:
    """A host activity that this run started."""

    attached: Attached
    handle: workflow.ActivityHandle[HookOutcome] | workflow.ActivityHandle[LeaseOutcome]
    nudged_at: float | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """The last word of a slot, when the same activity may start again, and the troubles in a row."""

    word: LastWord
    not_before: float
    troubles: int


@workflow.defn(name="ManagerWorkflow")
class ManagerWorkflow:
    """One host, as long as it is in contact, leased or not clean."""

    @workflow.init
    def __init__(self, given: ManagerInput) -> None:
        self._given = given
        self._attention = Attention()
        self._watched: dict[Slot, Watch] = {}
        self._heard: dict[Slot, Heard] = {}
        self._shown: Attributes = {}

    @workflow.run
    async def run(self, given: ManagerInput) -> None:
        view = await self._observe()
        while True:
            if self._hear() or self._attention.poked:
                view = await self._observe()
            step = manager_step(view, self._knowledge())
            self._show(view, step)
            match step:
                case Finish():
                    if not self._attention.poked:
                        return
                case Wait(why, seconds):
                    await self._continue_as_new_if_worn_out()
                    if not await self._attention.wait(seconds, why, self._anything_over):
                        view = await self._observe()
                case _:
                    if await self._attention.pace((step, view), self._anything_over):
                        view = await self._act(step, view)

    @workflow.signal(description="Look again: something has changed in PostgreSQL.")
    def poke(self) -> None:
        self._attention.poke()

    async def _observe(self) -> ManagerView:
        self._attention.look()
        return await workflow.execute_activity_method(
            ManagerActivities.observe,
            self._given.manager_id,
            **with_database("look at the host"),
        )

    async def _act(
        self, step: StartHost | Nudge | Abandon | Release, view: ManagerView
    ) -> ManagerView:
        """Do it; the view afterwards (the old one if PostgreSQL was not touched)."""
        match step:
            case StartHost():
                slot: Slot = "cleaning" if step.activity is HostActivity.CLEAN else "lease"
                watch = self._start(step)
                ending = view.lease is not None and view.lease.state is LeaseState.ENDING
                watch.attached = replace(watch.attached, to_the_end=slot == "lease" and ending)
                self._watched[slot] = watch
            case Nudge():
                self._nudge()
            case Abandon():
                del self._watched["lease"]
            case Release(epoch, reason):
                await workflow.execute_activity_method(
                    ManagerActivities.release,
                    ReleaseRequest(manager_id=view.manager_id, epoch=epoch, reason=reason),
                    **with_database(f"end the lease: {reason}"),
                )
                return await self._observe()
            case never:
                assert_never(never)
        return view

    def _start(self, step: StartHost) -> Watch:
        manager_id = self._given.manager_id
        command = HostCommand(
            manager_id=manager_id, task_group_id=step.task_group_id, epoch=step.epoch
        )
        epoch = "" if step.epoch is None else f", epoch {step.epoch}"
        options = on_host(manager_id, f"{step.task_group_id}{epoch}")
        handle: workflow.ActivityHandle[HookOutcome] | workflow.ActivityHandle[LeaseOutcome]
        match step.activity:
            case HostActivity.PREPARE:
                handle = workflow.start_activity_method(
                    HostActivities.prepare_environment, command, **options
                )
            case HostActivity.RUN:
                handle = workflow.start_activity_method(
                    HostActivities.run_lease, command, **options
                )
            case HostActivity.CLEAN:
                handle = workflow.start_activity_method(
                    HostActivities.clean_environment, command, **options
                )
            case never:
                assert_never(never)
        return Watch(Attached(step.activity, step.task_group_id, step.epoch), handle)

    def _nudge(self) -> None:
        """Cancel the activity, which makes the agent ask the API; the lease is not touched by it."""
        watch = self._watched["lease"]
        watch.nudged_at = workflow.time()
        watch.handle.cancel()

    def _anything_over(self) -> bool:
        return any(watch.handle.done() for watch in self._watched.values())

    def _hear(self) -> bool:
        """Take note of the host activities that have ended. True if one has."""
        over = [slot for slot, watch in self._watched.items() if watch.handle.done()]
        for slot in over:
            watch = self._watched.pop(slot)
            word = last_word(watch.attached, _ended(watch))
            before = self._heard.get(slot)
            again = before is not None and before.word.epoch == word.epoch
            troubles = (before.troubles if before and again else 0) + 1 if word.trouble else 0
            hold = min(FIRST_HOLD_SECONDS * 2.0 ** max(troubles - 1, 0), LONGEST_HOLD_SECONDS)
            self._heard[slot] = Heard(word, workflow.time() + hold, troubles)
        return bool(over)

    def _knowledge(self) -> HostKnowledge:
        lease, cleaning = self._watched.get("lease"), self._watched.get("cleaning")
        return HostKnowledge(
            lease=_attached(lease),
            cleaning=_attached(cleaning),
            lease_word=_word(self._heard.get("lease")),
            clean_word=_word(self._heard.get("cleaning")),
        )

    def _show(self, view: ManagerView, step: ManagerStep) -> None:
        """Say in Temporal's own tools what is going on."""
        why = step.why if isinstance(step, Wait) else type(step).__name__
        workflow.set_current_details(manager_details(view, why))
        if view.exists:
            attributes = manager_attributes(view)
            if updates := changes(self._shown, attributes):
                workflow.upsert_search_attributes(updates)
            self._shown = attributes

    async def _continue_as_new_if_worn_out(self) -> None:
        """Between hooks only: the next run attaches to a running lease again, a hook has no second watch."""
        lease = self._watched.get("lease")
        hook = lease is not None and lease.attached.activity is not HostActivity.RUN
        if not self._attention.worn_out() or hook or "cleaning" in self._watched:
            return
        if lease is not None:
            self._nudge()
            await workflow.wait([lease.handle], timeout=BACKSTOP_SECONDS)
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self._given)


def _ended(watch: Watch) -> Ended:
    """The outcome or the failure of an activity that is done."""
    if watch.handle.cancelled():
        return None
    return watch.handle.exception() or watch.handle.result()


def _attached(watch: Watch | None) -> Attached | None:
    if watch is None or watch.nudged_at is None:
        return watch.attached if watch else None
    return replace(watch.attached, nudged_seconds=workflow.time() - watch.nudged_at)


def _word(heard: Heard | None) -> LastWord | None:
    if heard is None:
        return None
    return replace(heard.word, hold_seconds=max(0.0, heard.not_before - workflow.time()))
