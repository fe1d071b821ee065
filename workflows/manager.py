"""The workflow of one host: observe, decide, act or wait. PostgreSQL keeps its lease and environments.

It watches the host through long activities on the host's own task queue and observes PostgreSQL at the same
time. A failed activity proves nothing: the liveness clock of the lease decides (protocol P4).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, assert_never

from temporalio import workflow
from temporalio.common import RawValue

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
    from workflows.activity_results import Ended, last_activity_result
    from workflows.decisions import (
        BACKSTOP_SECONDS,
        Abandon,
        DecideLease,
        Finish,
        HostActivity,
        KnownActivities,
        LastActivityResult,
        ManagerStep,
        Release,
        RequestLeaseCheck,
        RunningActivity,
        StartHost,
        Wait,
        manager_step,
    )
    from workflows.ensuring import ensure, quiet
    from workflows.options import on_host
    from workflows.poke_loop import PokeLoop
    from workflows.shown_names import show_names
    from workflows.visibility import (
        Attributes,
        changes,
        manager_attributes,
        manager_details,
        manager_names,
        task_group_name,
    )

Slot = Literal["lease", "cleaning"]
Act: TypeAlias = StartHost | RequestLeaseCheck | Abandon | Release | DecideLease
CHAIN_SECONDS = 60.0
"""After so long, and ever more rarely, the details of a host that is not used are written again."""
FIRST_HOLD_SECONDS = 1.0
HOLDS = (3.0, 600.0)
"""The factor between two pauses, and the longest one. A repetition costs 14 events."""
EARLIER_HOLDS = (2.0, 60.0)
"""The same in runs that began before ``QUIET_HISTORY``."""


@dataclass(slots=True)
class WatchedActivity:
    """A host activity that this run started."""

    running: RunningActivity
    handle: workflow.ActivityHandle[HookOutcome] | workflow.ActivityHandle[LeaseOutcome]
    check_requested_at: float | None = None


@dataclass(frozen=True, slots=True)
class ActivityHistory:
    """The last result of a slot, when the same activity may start again, and the troubles in a row."""

    result: LastActivityResult
    not_before: float
    troubles: int
    standing: ManagerView | None = None
    """The first view after it. A host in another standing, in contact again, need not wait."""


@workflow.defn(name="ManagerWorkflow")
class ManagerWorkflow:
    """One host, for as long as it is in contact, has a lease, or has an environment to clean."""

    @workflow.init
    def __init__(self, given: ManagerInput) -> None:
        self._given = given
        self._pokes = PokeLoop()
        self._watched: dict[Slot, WatchedActivity] = {}
        self._history: dict[Slot, ActivityHistory] = {}
        self._shown: Attributes = {}

    @workflow.run
    async def run(self, given: ManagerInput) -> None:
        view = await self._observe()
        while True:
            if self._collect_finished() or self._pokes.poked:
                view = await self._observe()
            step = manager_step(view, self._known_activities(view))
            if isinstance(step, Wait) and view.chain:
                step = replace(step, look_after=step.look_after or CHAIN_SECONDS)
            self._show(view, step)
            if not isinstance(step, Finish):
                view = await self._wait_or_act(step, view)
            elif not self._pokes.poked:
                return

    async def _wait_or_act(self, step: Wait | Act, view: ManagerView) -> ManagerView:
        if isinstance(step, Wait) or quiet():
            await self._continue_as_new_if_due()
        if isinstance(step, Wait):
            news = await self._pokes.wait(step, view.standing, self._anything_over)
            return view if news else await self._observe()
        if await self._pokes.backoff_before(step, view, view.standing, self._anything_over):
            return await self._act(step, view)
        return view

    @workflow.signal(description="Look again: something has changed in PostgreSQL.")
    def poke(self) -> None:
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

    async def _observe(self) -> ManagerView:
        self._pokes.look()
        return await ensure(ManagerActivities.observe, self._given.manager_id, "observe the host")

    async def _act(self, step: Act, view: ManagerView) -> ManagerView:
        """Execute the step and return the view after it; the old one if PostgreSQL was not changed."""
        match step:
            case StartHost():
                slot: Slot = "cleaning" if step.activity is HostActivity.CLEAN else "lease"
                watch = self._start(step, view)
                ending = view.lease is not None and view.lease.state is LeaseState.ENDING
                watch.running = replace(watch.running, to_the_end=slot == "lease" and ending)
                self._watched[slot] = watch
            case RequestLeaseCheck():
                self._request_lease_check()
            case Abandon():
                del self._watched["lease"]
            case Release(epoch, reason):
                await ensure(
                    ManagerActivities.release,
                    ReleaseRequest(manager_id=view.manager_id, epoch=epoch, reason=reason),
                    f"end the lease: {reason}",
                )
                return await self._observe()
            case DecideLease(_, what):
                await ensure(
                    ManagerActivities.decide_leases,
                    what,
                    f"ask for a decision about the lease: {what}",
                )
                return await self._observe()
            case never:
                assert_never(never)
        return view

    def _start(self, step: StartHost, view: ManagerView) -> WatchedActivity:
        manager_id = self._given.manager_id
        command = HostCommand(
            manager_id=manager_id, task_group_id=step.task_group_id, epoch=step.epoch
        )
        epoch = "" if step.epoch is None else f", epoch {step.epoch}"
        name = task_group_name(view, step.task_group_id)
        options = on_host(manager_id, f"{name}{epoch}")
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
        return WatchedActivity(
            RunningActivity(step.activity, step.task_group_id, step.epoch), handle
        )

    def _request_lease_check(self) -> None:
        """Cancel the activity, which makes the agent ask the API. The lease itself does not change."""
        watch = self._watched["lease"]
        watch.check_requested_at = workflow.time()
        watch.handle.cancel()

    def _anything_over(self) -> bool:
        return any(watch.handle.done() for watch in self._watched.values())

    def _collect_finished(self) -> bool:
        """Record the results of host activities that have ended; return whether there was one."""
        over = [slot for slot, watch in self._watched.items() if watch.handle.done()]
        for slot in over:
            watch = self._watched.pop(slot)
            result = last_activity_result(watch.running, _ended(watch))
            before = self._history.get(slot)
            again = before is not None and before.result.epoch == result.epoch
            troubles = (before.troubles if before and again else 0) + 1 if result.trouble else 0
            factor, longest = HOLDS if quiet() else EARLIER_HOLDS
            hold = min(FIRST_HOLD_SECONDS * factor ** min(max(troubles - 1, 0), 16), longest)
            self._history[slot] = ActivityHistory(result, workflow.time() + hold, troubles)
        return bool(over)

    def _known_activities(self, view: ManagerView) -> KnownActivities:
        standing = view.standing
        for slot, history in self._history.items():
            if history.standing is None:
                self._history[slot] = replace(history, standing=standing)
        lease, cleaning = self._watched.get("lease"), self._watched.get("cleaning")
        return KnownActivities(
            lease=_running_activity(lease),
            cleaning=_running_activity(cleaning),
            lease_result=_latest_result(self._history.get("lease"), standing),
            cleaning_result=_latest_result(self._history.get("cleaning"), standing),
        )

    def _show(self, view: ManagerView, step: ManagerStep) -> None:
        """Show the state and the next step in Temporal's own tools."""
        why = step.why if isinstance(step, Wait) else type(step).__name__
        workflow.set_current_details(manager_details(view, why, workflow.now()))
        if view.exists:
            attributes = manager_attributes(view)
            if updates := changes(self._shown, attributes):
                workflow.upsert_search_attributes(updates)
            self._shown = attributes
            show_names(manager_names(view))

    async def _continue_as_new_if_due(self) -> None:
        """Continue as new unless a hook runs: the next run can attach to a lease again, not to a hook."""
        lease = self._watched.get("lease")
        hook = lease is not None and lease.running.activity is not HostActivity.RUN
        due = self._pokes.should_continue_as_new()
        if not due or hook or "cleaning" in self._watched:
            return
        if lease is not None:
            self._request_lease_check()
            await workflow.wait([lease.handle], timeout=BACKSTOP_SECONDS)
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self._given)


def _ended(watch: WatchedActivity) -> Ended:
    """Return the outcome or the failure of an activity that has ended."""
    if watch.handle.cancelled():
        return None
    return watch.handle.exception() or watch.handle.result()


def _running_activity(watch: WatchedActivity | None) -> RunningActivity | None:
    if watch is None or watch.check_requested_at is None:
        return watch.running if watch else None
    return replace(
        watch.running, check_requested_seconds=workflow.time() - watch.check_requested_at
    )


def _latest_result(
    history: ActivityHistory | None, standing: ManagerView
) -> LastActivityResult | None:
    if history is None:
        return None
    hold = max(0.0, history.not_before - workflow.time())
    changed = quiet() and history.standing != standing
    return replace(history.result, hold_seconds=0.0 if changed else hold)
