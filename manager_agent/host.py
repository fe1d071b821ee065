"""Carries out the commands of Temporal on this host: implements ``activities.host.HostPort``.

A command consists of ids only. The agent fetches their meaning from the API with its own token, and
refuses a command that PostgreSQL does not confirm. ``run_lease`` watches a session; it does not own it.

The answers to renewals give the same commands over HTTP (:meth:`Host.follow`), so that a host which
cannot reach Temporal neither keeps a task group unsettled nor its lease idle (P6, P8). Both ways join.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from activities.heartbeats import heartbeats
from manager_agent.agent_api import AgentApi
from manager_agent.environments import Environments, lease_lost
from manager_agent.lease_session import LeaseSession
from mitosis.concurrency import cancel_and_wait, wait_event, within
from mitosis.contracts.agent_http import HeldLease, LeaseGrant
from mitosis.contracts.control import (
    HookOutcome,
    HookVerdict,
    HostCommand,
    LeaseEnd,
    LeaseOutcome,
)
from mitosis.contracts.errors import ApiUnavailable, LeaseLost, MitosisError
from mitosis.contracts.lifecycle import EnvironmentState, LeaseState
from mitosis.contracts.wire import LeaseNotice, LeaseStanding, RenewalAnswer
from mitosis.execution.backoff import is_refusal, until_reached

TAKE_SECONDS = 5.0
"""How long an offer may wait for the API; a lost answer is no failure of the host."""
CONFIRM_SECONDS = 5.0
"""How long a cancelled ``run_lease`` waits for the API to confirm that the lease ends."""

T = TypeVar("T")
log = logging.getLogger(__name__)

_RESUMABLE = (LeaseState.ACTIVE, EnvironmentState.READY)


class Host:
    """One manager on one host. At most one lease session at a time."""

    def __init__(
        self,
        manager_id: UUID,
        api: AgentApi,
        environments: Environments,
        make_session: Callable[[LeaseGrant], LeaseSession],
        replayed: Callable[[], Awaitable[None]],
    ) -> None:
        """``replayed`` waits until the reports of earlier processes of the agent are sent."""
        self.session: LeaseSession | None = None
        self.over: int | None = None
        """The epoch under which nothing runs here any more, until an answer shows that the API knows."""
        self.stopping = False
        """The agent shuts down: no session is started."""
        self._manager_id = manager_id
        self._api = api
        self._environments = environments
        self._make_session = make_session
        self._replayed = replayed
        self._starting = asyncio.Lock()
        self._duties: dict[tuple[str, object], asyncio.Task[object]] = {}

    async def prepare_environment(self, command: HostCommand) -> HookOutcome:
        async with heartbeats():
            try:
                grant = await self._taken(command)
            except MitosisError as error:
                if not is_refusal(error):
                    raise
                return lease_lost(error)
            return await self._prepared(grant)

    async def run_lease(self, command: HostCommand) -> LeaseOutcome:
        try:
            session = await self._attach(command)
        except MitosisError as error:
            if not is_refusal(error):
                raise
            log.warning("lease.command_refused", extra={"reason": error.message})
            return LeaseOutcome(end=LeaseEnd.GONE)
        if session is None:
            return LeaseOutcome(end=LeaseEnd.ENDING)
        async with heartbeats(session.progress):
            try:
                await session.over.wait()
            except asyncio.CancelledError:
                return await self._detach(session)
        return _outcome(session)

    async def clean_environment(self, command: HostCommand) -> HookOutcome:
        async with heartbeats():
            try:
                self._check_ours(command)
            except LeaseLost as error:
                return lease_lost(error)
            return await self._clean(command.task_group_id)

    async def clean_owed(self, task_group_ids: tuple[UUID, ...]) -> None:
        """Run the teardowns that a lost host owes: after its hello, before any setup (P5)."""
        for task_group_id in task_group_ids:
            await self._clean(task_group_id)

    async def resume(self, lease: HeldLease) -> None:
        """Resume a lease that the hello confirmed, if its environment is ready; ``run_lease`` of
        Temporal attaches later (S000-94).
        """
        try:
            grant = await until_reached(lambda: self._api.grant(lease.epoch))
            ready = (grant.lease_state, grant.environment_state) == _RESUMABLE
            async with self._starting:
                if ready and self.session is None and await self._environments.is_prepared(grant):
                    self._start(grant)
        except MitosisError as error:
            log.warning("lease.not_resumed", extra={"reason": error.message})

    # --- the same commands in the answers to renewals --------------------------------------------

    def follow(self, answer: RenewalAnswer) -> None:
        """Take up the lease and the teardowns that an answer names; nothing if that is under way (P8)."""
        notice = answer.lease
        if notice is None or notice.epoch != self.over:
            self.over = None
        if self.stopping:
            return
        if notice is not None and self.over is None:
            self._take_up(notice)
        for task_group_id in answer.teardowns:
            if self._environments.postponed(task_group_id):
                continue
            self._duty(("teardown", task_group_id), partial(self._clean, task_group_id))

    def _take_up(self, notice: LeaseNotice) -> None:
        group = notice.task_group_id
        if notice.standing is LeaseStanding.ENDING:
            self._duty(("stop", group), lambda: self._environments.stop_setup(group))
        if not self._environments.preparing(group):
            self._duty(("lease", notice.epoch), lambda: self._adopt(notice))

    async def _adopt(self, notice: LeaseNotice) -> None:
        """Work under a lease that this host holds without a session, or say that it is over."""
        command = HostCommand(
            manager_id=self._manager_id,
            task_group_id=notice.task_group_id,
            epoch=notice.epoch,
        )
        try:
            failed = self._environments.setup_failed(notice.epoch)
            over = failed or await self._attach(command) is None
        except MitosisError as error:
            over = self._environments.setup_failed(notice.epoch)
            log.info("lease.not_adopted", extra={"epoch": notice.epoch, "reason": error.message})
        if over:
            self.over = notice.epoch

    def _duty(
        self, key: tuple[str, object], start: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        """Start what is not under way; the next answer starts it again if it fails."""
        if key not in self._duties:
            task = self._duties[key] = asyncio.get_running_loop().create_task(start())
            task.add_done_callback(lambda _: self._duty_done(key))

    def _duty_done(self, key: tuple[str, object]) -> None:
        task = self._duties.pop(key)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("duty.failed", extra={"duty": key[0]}, exc_info=error)

    async def close(self) -> None:
        """End what an answer has started."""
        await cancel_and_wait(*self._duties.values())

    # --- the checks that only a host can make ----------------------------------------------------

    def _check_ours(self, command: HostCommand) -> None:
        if command.manager_id != self._manager_id:
            raise LeaseLost("the command is for another manager")

    async def _group_is_idle(self, task_group_id: UUID) -> None:
        """Wait until no task of the group, of any epoch, runs or is held here.

        Raises:
            LeaseLost: a session of the group is active, so the environment must stay.
        """
        session = self.session
        if session is None or session.grant.task_group_id != task_group_id:
            return
        if not session.ending:
            raise LeaseLost("tasks of the group run here under a lease that has not ended")
        await session.over.wait()

    async def _taken(self, command: HostCommand) -> LeaseGrant:
        """Take the lease after the previous session has ended.

        Raises:
            LeaseLost: PostgreSQL has no such lease of this manager for this group.
        """
        self._check_ours(command)
        if command.epoch is None:
            raise LeaseLost("the command names no lease")
        if self.session is not None and self.session.epoch != command.epoch:
            await self._previous_over(command.epoch)
        epoch = command.epoch
        try:
            grant = await within(until_reached(lambda: self._api.take(epoch)), TAKE_SECONDS)
        except TimeoutError:
            raise ApiUnavailable("the API did not confirm that the lease is taken") from None
        return _confirmed(command, grant)

    async def _attach(self, command: HostCommand) -> LeaseSession | None:
        """Return the session of this epoch; start it if it does not run.

        Returns None if the lease ends; its setup has been stopped then.
        """
        self._check_ours(command)
        if command.epoch is None:
            raise LeaseLost("the command names no lease")
        async with self._starting, heartbeats():
            session = self.session
            if session is not None and session.epoch == command.epoch and not session.over.is_set():
                _same_group(command, session.grant.task_group_id)
                return session
            await self._previous_over(command.epoch)
            grant = _confirmed(command, await self._api.grant(command.epoch))
            if grant.lease_state is LeaseState.ENDING:
                await self._environments.stop_setup(grant.task_group_id)
                await self._replayed()  # the lease may have been given for these reports alone (P5)
                return None
            self._refuse_during_teardown(grant)
            if not await self._environments.is_prepared(grant):
                outcome = await self._prepared(grant)
                if outcome.verdict is not HookVerdict.READY:
                    raise LeaseLost(f"the environment is not ready: {outcome.message}")
            return self._start(grant)

    async def _prepared(self, grant: LeaseGrant) -> HookOutcome:
        """Prepare the environment. A setup that fails has started, so its teardown follows at once."""
        outcome = await self._environments.prepare(grant)
        if outcome.verdict is HookVerdict.FAILED:
            await self._clean(grant.task_group_id)
        return outcome

    async def _clean(self, task_group_id: UUID) -> HookOutcome:
        return await self._environments.clean(task_group_id, self._group_is_idle)

    async def _previous_over(self, epoch: int) -> None:
        """Wait until the session of another epoch has ended: a host runs one at a time."""
        session = self.session
        if session is not None and not session.over.is_set():
            if session.epoch != epoch:
                session.ask_standing()
            await session.over.wait()

    def _start(self, grant: LeaseGrant) -> LeaseSession:
        if self.stopping:
            raise ApiUnavailable("the agent is shutting down")
        self._refuse_during_teardown(grant)
        self.session = self._make_session(grant)
        self.session.start()
        return self.session

    def _refuse_during_teardown(self, grant: LeaseGrant) -> None:
        if self._environments.cleaning(grant.task_group_id):
            raise LeaseLost("the environment of the group is being torn down")

    async def _detach(self, session: LeaseSession) -> LeaseOutcome:
        """Handle a cancelled activity: only an ending that the API confirms ends the session (P4)."""
        session.ask_standing()
        await wait_event(session.ends, CONFIRM_SECONDS)
        if not session.ending:
            log.info("lease.detached", extra={"epoch": session.epoch})
            return LeaseOutcome(end=LeaseEnd.DETACHED, tasks_reported=session.state.finished)
        await session.over.wait()
        return _outcome(session)


def _confirmed(command: HostCommand, grant: LeaseGrant) -> LeaseGrant:
    _same_group(command, grant.task_group_id)
    return grant


def _same_group(command: HostCommand, task_group_id: UUID) -> None:
    if command.task_group_id != task_group_id:
        raise LeaseLost("the lease is for another task group")


def _outcome(session: LeaseSession) -> LeaseOutcome:
    end = session.ended_in or LeaseEnd.STOPPING
    return LeaseOutcome(end=end, tasks_reported=session.state.finished)
