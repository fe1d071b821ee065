"""Prepares and cleans the environment of a group on this host: hooks, checkpoints, compare-and-sets.

The row in PostgreSQL holds the state of an environment (protocol P9). This module adds the check that
only the host can make: no task of the group runs here during its teardown.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from manager_agent.affinity import plan_cpus
from manager_agent.agent_api import AgentApi
from manager_agent.checkpoint import Checkpoints, fingerprint
from manager_agent.ended_hooks import GONE, EndedHooks, failure_of, outcome_of
from manager_agent.hooks import HookResult, run_hook
from manager_agent.step_deaths import Kind, Step, StepDeaths
from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.agent_http import EnvironmentChange, EnvironmentGrant, HookReport, LeaseGrant
from mitosis.contracts.control import HookOutcome, HookVerdict
from mitosis.contracts.errors import (
    InvalidRequest,
    LeaseLost,
    MitosisError,
    NotFound,
)
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.execution.backoff import until_reached
from mitosis.execution.leftovers import HOOK_RUN, end_daemons, hook_run
from mitosis.retry_policy import Backoff, RetryPolicy

DEBTS = RetryPolicy(first_seconds=10.0, longest_seconds=300.0, jitter=0.0)
"""Between two tries to begin a teardown whose hook cannot be started."""

OWED_UNTIL = (
    "it is tried again with a growing pause of at most 5 min, and by a restart of the agent; until then"
    " the host serves nothing else"
)

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Debt:
    """A teardown that this host owes because it had no process for the hook."""

    backoff: Backoff
    due_at: float = 0.0
    """On the monotonic clock."""


class Environments:
    """All environments of one manager on this host. One hook of a group runs at a time."""

    def __init__(
        self,
        manager_id: UUID,
        api: AgentApi,
        checkpoints: Checkpoints,
        steps: StepDeaths,
        ended: EndedHooks,
    ) -> None:
        self._manager_id = manager_id
        self._api = api
        self._checkpoints = checkpoints
        self._steps = steps
        self._ended = ended
        self._given_up: dict[UUID, int] = {}
        """Task groups whose setup or probe has been refused, with the epoch of the lease."""
        self._failed: dict[int, HookOutcome] = {}
        """Epochs whose setup has failed: it is not run again under the same lease."""
        self._setups: dict[UUID, asyncio.Task[HookOutcome]] = {}
        self._probes: dict[UUID, asyncio.Task[None]] = {}
        self._verdicts: dict[UUID, tuple[int, bool]] = {}
        """Epoch of the lease, and whether the environment is prepared: by its probe or its setup."""
        self._teardowns: dict[UUID, asyncio.Task[HookOutcome]] = {}
        self._one_teardown = asyncio.Lock()
        self._debts: dict[UUID, _Debt] = {}

    def cleaning(self, task_group_id: UUID) -> bool:
        """Return True during a teardown: no task of the group may start."""
        return task_group_id in self._teardowns

    def postponed(self, task_group_id: UUID) -> bool:
        """Return True in the pause before a teardown that could not begin is tried again."""
        debt = self._debts.get(task_group_id)
        return debt is not None and time.monotonic() < debt.due_at

    async def prepare(self, grant: LeaseGrant) -> HookOutcome:
        """Make the environment ready, after every teardown (P9).

        A second call joins the first; the work survives a cancelled caller.
        """
        if (failed := self._failed.get(grant.epoch)) is not None:
            return failed
        try:
            grant = await self._after_teardowns(grant)
        except MitosisError as error:
            return lease_lost(error)
        outcome = await _joined(self._setups, grant.task_group_id, lambda: self._prepare(grant))
        if outcome.verdict is HookVerdict.FAILED:
            self._failed = {grant.epoch: outcome}
        return outcome

    async def _after_teardowns(self, grant: LeaseGrant) -> LeaseGrant:
        """Wait until no teardown runs; return the grant as it is then, since they change environments."""
        epoch = grant.epoch
        while self._teardowns:
            await asyncio.wait(list(self._teardowns.values()))
            grant = await until_reached(lambda: self._api.grant(epoch))
        return grant

    def setup_failed(self, epoch: int) -> bool:
        """Return True if the last setup failed under this lease."""
        return epoch in self._failed

    def preparing(self, task_group_id: UUID) -> bool:
        """Return True during a setup."""
        return task_group_id in self._setups

    async def clean(
        self, task_group_id: UUID, idle: Callable[[UUID], Awaitable[None]]
    ) -> HookOutcome:
        """Tear the environment down, even if its hook fails; joined as :meth:`prepare`.

        One teardown runs at a time. ``idle`` waits until no task of the group runs here; from the call on
        none starts, see :meth:`cleaning`.
        """
        return await _joined(
            self._teardowns, task_group_id, lambda: self._clean(task_group_id, idle)
        )

    async def stop_setup(self, task_group_id: UUID) -> None:
        """Kill the setup hook or the probe if it runs. The environment stays half prepared."""
        running = (self._setups.get(task_group_id), self._probes.get(task_group_id))
        await cancel_and_wait(*(task for task in running if task is not None))

    async def close(self) -> None:
        """Kill the running hooks."""
        await cancel_and_wait(
            *self._setups.values(), *self._probes.values(), *self._teardowns.values()
        )

    # --- setup ----------------------------------------------------------------------------------

    async def _prepare(self, grant: LeaseGrant) -> HookOutcome:
        group, mark = (
            grant.task_group_id,
            fingerprint(grant.task_group_id, grant.environment_setup_hook),
        )
        if self._given_up.get(group, grant.epoch) != grant.epoch:
            # Only a verb or a changed hook brings the host back to the group (C-30).
            self._steps.forget(group)
            del self._given_up[group]
        try:
            grant, failed = await self._report_setup_before(grant, mark)
            if failed is not None:
                return failed
            if await self.is_prepared(grant):
                return self._check_plan(grant) or HookOutcome(
                    verdict=HookVerdict.READY, message="prepared before"
                )
            refused = self._check_plan(grant)
            began = None if refused is not None else self._setup_begins(grant)
            was_ready = grant.environment_state is EnvironmentState.READY
            if not was_ready or began is not None:
                # One that was ready counts as ready until this setup has ended.
                event = "prepared" if was_ready else "preparing"
                await self._change(
                    group, event=event, epoch=grant.epoch, fingerprint=mark, hook=began
                )
            if refused is not None:
                await self._refuse(grant, refused)
                return refused
            return await self._set_up(grant, mark, began)
        except GONE as error:
            return lease_lost(error)

    async def _report_setup_before(
        self, grant: LeaseGrant, mark: str
    ) -> tuple[LeaseGrant, HookOutcome | None]:
        """Report the end of a setup that the process before could not report.

        Returns:
            The grant as it is then, and the outcome if that setup had failed.
        """
        group, kept = grant.task_group_id, self._ended.find(grant.task_group_id)
        known = (EnvironmentState.PREPARING, EnvironmentState.READY)
        if kept is None or kept.fingerprint != mark or grant.environment_state not in known:
            return grant, None
        if kept.event == "setup_failed":
            await self._end_daemons(group)
        elif kept.event != "prepared" or not self._checkpoints.holds(group, mark):
            return grant, None
        await self._ended.report(group, kept.model_copy(update={"epoch": grant.epoch}))
        if kept.event == "setup_failed":
            return grant, failure_of(kept.hook)
        return grant.model_copy(update={"environment_state": EnvironmentState.READY}), None

    async def is_prepared(self, grant: LeaseGrant) -> bool:
        """Check that PostgreSQL has the environment as ready, and that the group's setup is still valid here.

        A setup, if the group has one, has succeeded in this instance of the file system, and the group's
        probe, if any, agrees.

        Raises:
            LeaseLost: the probe was stopped, because the lease ends.
        """
        hook, group = grant.environment_setup_hook, grant.task_group_id
        if grant.environment_state is not EnvironmentState.READY:
            return False
        if hook is None:
            return True
        if not self._checkpoints.holds(group, fingerprint(group, hook)):
            return False
        return grant.environment_probe is None or await self._verdict(grant)

    async def _verdict(self, grant: LeaseGrant) -> bool:
        """Return what the probe says under this lease. It runs once; callers at the same time join.

        A setup that has succeeded under the lease needs no probe.
        """
        group = grant.task_group_id
        while True:
            epoch, prepared = self._verdicts.get(group, (None, False))
            if epoch == grant.epoch:
                return prepared
            probe = _started(self._probes, group, lambda: self._probe(grant))
            await asyncio.wait([probe])
            if probe.cancelled():
                raise LeaseLost("the probe was stopped")
            probe.result()  # raises its error

    async def _probe(self, grant: LeaseGrant) -> None:
        result = await self._run_for(grant, "probe", grant.environment_probe)
        prepared = result is None or result.succeeded
        if result is not None and not prepared:
            log.warning("probe.failed", extra={"reason": failure_of(result.report()).message})
        self._verdicts[grant.task_group_id] = (grant.epoch, prepared)

    def _distrust(self, group: UUID) -> None:
        """Forget that the environment is prepared, before a hook changes it."""
        self._verdicts.pop(group, None)
        self._checkpoints.forget(group)
        self._ended.forget(group)

    def _check_plan(self, grant: LeaseGrant) -> HookOutcome | None:
        try:
            plan_cpus(grant.worker_allocation_plan)
        except InvalidRequest as error:
            log.warning("plan.refused", extra={"reason": error.message})
            return HookOutcome(verdict=HookVerdict.FAILED, message=error.message)
        return None

    async def _refuse(self, grant: LeaseGrant, refused: HookOutcome) -> None:
        """Report a plan that this host cannot hold."""
        now = datetime.now(UTC)
        hook = HookReport(state="failed", message=refused.message, started_at=now, finished_at=now)
        await self._change(grant.task_group_id, event="setup_failed", epoch=grant.epoch, hook=hook)
        if grant.environment_state is not EnvironmentState.READY:  # no setup has started
            await self._change(grant.task_group_id, event="cleaned")

    def _setup_begins(self, grant: LeaseGrant) -> HookReport | None:
        """Return the report that the setup hook begins."""
        group, hook = grant.task_group_id, grant.environment_setup_hook
        return self._beginning(
            _step("setup hook", group, hook), _step("probe", group, grant.environment_probe)
        )

    def _beginning(self, hook: Step | None, *others: Step | None) -> HookReport | None:
        """Return the report that a hook begins, which stays if this process dies; None if none runs."""
        if hook is None or any(self._refusal(step) for step in (hook, *others)):
            return None
        return HookReport(state="running", started_at=datetime.now(UTC))

    async def _set_up(self, grant: LeaseGrant, mark: str, began: HookReport | None) -> HookOutcome:
        """Run the setup hook; every run is reported, also one of an environment that was ready before."""
        group = grant.task_group_id
        self._distrust(group)
        result = self._refusal(_step("probe", group, grant.environment_probe))
        if result is None:
            result = await self._run_for(grant, "setup hook", grant.environment_setup_hook)
        if result is not None and began is not None:
            result = replace(result, started_at=began.started_at)
        if result is not None and result.refused:
            self._given_up[group] = grant.epoch
        event = "setup_failed" if result is not None and not result.succeeded else "prepared"
        if result is not None and event == "prepared":
            self._checkpoints.write(group, mark)
            self._verdicts[group] = (grant.epoch, True)
        ended = self._ended.keep(
            group, event=event, epoch=grant.epoch, fingerprint=mark, hook=_report(result)
        )
        if event == "setup_failed":
            await self._end_daemons(group)
        await self._ended.report(group, ended)
        if event == "setup_failed":
            return failure_of(ended.hook)
        return outcome_of(HookVerdict.READY, ended.hook)

    # --- teardown -------------------------------------------------------------------------------

    async def _clean(
        self, task_group_id: UUID, idle: Callable[[UUID], Awaitable[None]]
    ) -> HookOutcome:
        outcome = await self._clean_when_idle(task_group_id, idle)
        log.info(
            "teardown.ended",
            extra={"task_group_id": str(task_group_id), "verdict": outcome.verdict},
        )
        return outcome

    async def _clean_when_idle(
        self, task_group_id: UUID, idle: Callable[[UUID], Awaitable[None]]
    ) -> HookOutcome:
        try:
            await idle(task_group_id)
        except LeaseLost as error:
            return lease_lost(error)
        async with self._one_teardown:
            return await self._begin_teardown(task_group_id)

    async def _begin_teardown(self, task_group_id: UUID) -> HookOutcome:
        try:
            grant = await until_reached(lambda: self._api.environment(task_group_id))
            if grant.state is EnvironmentState.GONE:
                return HookOutcome(verdict=HookVerdict.CLEANED, message="nothing was left")
            kept = self._ended.find(task_group_id)
            if kept is not None and kept.event == "cleaned" and grant.state.is_debt:
                return await self._report_cleaned(task_group_id, kept)
            if kept is not None and kept.event != "cleaned":
                await self._ended.record(task_group_id, kept)
            hook = grant.environment_teardown_hook
            began = self._beginning(_step("teardown hook", task_group_id, hook))
            if grant.state is not EnvironmentState.TEARING_DOWN or began is not None:
                await self._change(task_group_id, event="tear_down", hook=began)
        except NotFound:
            return HookOutcome(verdict=HookVerdict.CLEANED, message="nothing was left")
        except MitosisError as error:
            return lease_lost(error)
        await self.stop_setup(task_group_id)  # confirmed: nothing of it is needed any more
        return await self._tear_down(grant, began)

    async def _tear_down(self, grant: EnvironmentGrant, began: HookReport | None) -> HookOutcome:
        group = grant.task_group_id
        self._distrust(group)
        names = (group, grant.task_group_name, grant.group_name)
        hook = grant.environment_teardown_hook
        result = await self._run("teardown hook", hook, names, grant.worker_count)
        if result is not None and began is not None:
            result = replace(result, started_at=began.started_at)
        if result is not None and not result.begun:
            return await self._owe(group, result)
        self._debts.pop(group, None)
        degraded = result is not None and not result.succeeded
        ended = self._ended.keep(group, event="cleaned", degraded=degraded, hook=_report(result))
        return await self._report_cleaned(group, ended)

    async def _report_cleaned(self, group: UUID, ended: EnvironmentChange) -> HookOutcome:
        await self._end_daemons(group)
        try:
            await self._ended.report(group, ended)
        except GONE as error:
            return lease_lost(error)
        verdict = HookVerdict.DEGRADED if ended.degraded else HookVerdict.CLEANED
        return outcome_of(verdict, ended.hook)

    async def _owe(self, group: UUID, result: HookResult) -> HookOutcome:
        """Report a teardown that could not begin: the host serves nothing else before it is done."""
        debt = self._debts.setdefault(group, _Debt(Backoff(DEBTS)))
        pause = debt.backoff.next_pause()
        debt.due_at = time.monotonic() + pause
        why = f"{result.message}; {OWED_UNTIL}"
        log.warning("teardown.not_begun", extra={"reason": result.message, "pause": pause})
        hook = result.report().model_copy(
            update={"message": why, "retry_count": debt.backoff.failures}
        )
        try:
            await self._change(group, event="postpone", hook=hook)
        except GONE as error:
            return lease_lost(error)
        return HookOutcome(verdict=HookVerdict.LEASE_LOST, message=why)

    # --- both -----------------------------------------------------------------------------------

    async def _run_for(
        self, grant: LeaseGrant, kind: Kind, hook: HookSpec | None
    ) -> HookResult | None:
        names = (grant.task_group_id, grant.task_group_name, grant.group_name)
        return await self._run(kind, hook, names, grant.worker_allocation_plan.worker_count)

    def _refusal(self, step: Step | None) -> HookResult | None:
        """Return the result of a hook that has ended too many processes of the agent to be run again."""
        reason = self._steps.refusal(step) if step is not None else None
        return HookResult.refusal(reason) if reason is not None else None

    async def _run(
        self, kind: Kind, hook: HookSpec | None, names: tuple[UUID, str, str], worker_count: int
    ) -> HookResult | None:
        group, task_group_name, group_name = names
        step = _step(kind, group, hook)
        if hook is None or step is None:
            return None
        result = self._refusal(step)
        if result is None:
            variables = {
                "MITOSIS_TASK_GROUP_UUID": str(group),
                "MITOSIS_TASK_GROUP_NAME": task_group_name,
                "MITOSIS_GROUP_NAME": group_name,
                "MITOSIS_WORKER_COUNT": str(worker_count),
                "MITOSIS_MANAGER_ID": str(self._manager_id),
                HOOK_RUN: hook_run(kind.split()[0], str(self._manager_id), str(group)),
            }
            with self._steps.during(step):
                result = await run_hook(hook, variables, keeps_daemons=kind == "setup hook")
        log.info(
            "hook.ended",
            extra={
                "task_group": task_group_name,
                "command": os.path.basename(hook.command[0]),  # noqa: PTH119 - any word, not a path
                "succeeded": result.succeeded,
                "reason": result.message,
                "seconds": round(result.seconds, 3),
            },
        )
        return result

    async def _end_daemons(self, task_group_id: UUID) -> None:
        """End the daemons of the group's hooks: they end with the environment."""
        await end_daemons(str(self._manager_id), str(task_group_id))

    async def _change(self, task_group_id: UUID, **change: object) -> EnvironmentState:
        """Send a change until the API answers, so that an outage loses none."""
        body = EnvironmentChange.model_validate(change)
        return await until_reached(lambda: self._api.change_environment(task_group_id, body))


def lease_lost(error: MitosisError) -> HookOutcome:
    """Return the outcome of a command that PostgreSQL does not confirm."""
    return HookOutcome(verdict=HookVerdict.LEASE_LOST, message=error.message)


def _step(kind: Kind, group: UUID, hook: HookSpec | None) -> Step | None:
    return Step(kind, group, hook.model_dump_json()) if hook is not None else None


def _report(result: HookResult | None) -> HookReport | None:
    return result.report() if result is not None else None


def _started(
    running: dict[UUID, asyncio.Task[T]], key: UUID, start: Callable[[], Coroutine[None, None, T]]
) -> asyncio.Task[T]:
    """Return the task of ``key``; start it if it does not run."""
    task = running.get(key)
    if task is None:
        task = running[key] = asyncio.get_running_loop().create_task(start())
        task.add_done_callback(lambda _: running.pop(key, None))
    return task


async def _joined(
    running: dict[UUID, asyncio.Task[HookOutcome]],
    key: UUID,
    start: Callable[[], Coroutine[None, None, HookOutcome]],
) -> HookOutcome:
    """Start the task of ``key`` or join it; cancelling the caller does not cancel the task."""
    return await asyncio.shield(_started(running, key, start))
