"""An agent without processes that speaks to the real API and to Temporal, as the real one does.

Its tasks do nothing and take the time that their arguments say. For campaigns with many hosts. Calls that the
real agent repeats while the API is busy are repeated here too.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.heartbeats import heartbeats
from activities.host import HostActivities
from manager_agent.agent_api import AgentApi
from manager_agent.temporal import HEARTBEAT_THROTTLE
from mitosis.contracts.agent_http import EnvironmentChange, Hello, HookReport
from mitosis.contracts.control import HookOutcome, HookVerdict, HostCommand, LeaseEnd, LeaseOutcome
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.temporal_names import host_task_queue
from mitosis.contracts.wire import (
    ClaimedTask,
    ClaimTasks,
    LeaseStanding,
    Outcome,
    Renewal,
    ReportStatus,
    TaskAttempt,
    TaskReport,
)
from mitosis.execution.backoff import until_reached

RENEWS_EVERY = 3.0
"""As the real agent: a campaign with many hosts shares its cores with what it tests."""
CLAIM_WAITS = 5.0


@dataclass
class Session:
    """What this host does under one lease."""

    epoch: int
    group: UUID
    workers: int
    ready: bool = False
    ending: bool = False
    sequence: int = 0
    running: dict[int, ClaimedTask] = field(default_factory=dict)


@dataclass
class HttpAgent:
    """One host; ``away`` cuts it off from the API."""

    api: AgentApi
    manager_id: UUID
    name: str
    cores: int = 2
    incarnation: int = 1
    away: bool = False
    session: Session | None = None
    committed: list[int] = field(default_factory=list)
    """Tasks whose report was accepted, in order."""
    begun: list[int] = field(default_factory=list)
    excused: set[int] = field(default_factory=set)
    """Tasks that this host held when it was cut off: they may run again elsewhere."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # --- life ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, client: Client) -> AsyncIterator[None]:
        """Say hello, keep in contact, and take the commands of Temporal."""
        await self.hello()
        host = HostActivities(self)
        worker = Worker(
            client,
            task_queue=host_task_queue(self.manager_id),
            activities=[host.prepare_environment, host.run_lease, host.clean_environment],
            max_concurrent_activities=8,
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        )
        async with worker:
            loops = [
                asyncio.create_task(one()) for one in (self._renew_for_ever, self._claim_for_ever)
            ]
            try:
                yield
            finally:
                for task in [*loops, *self._tasks]:
                    task.cancel()
                await asyncio.gather(*loops, *self._tasks, return_exceptions=True)
                self.api.close()

    async def hello(self) -> None:
        """Start as a new process: what the one before held runs again."""
        self.session = None
        hello = Hello(
            incarnation=self.incarnation,
            machine_id=self.name,
            boot_id="boot",
            host_name=self.name,
            cores=tuple(range(self.cores)),
            agent_version="0",
        )
        await until_reached(lambda: self.api.hello(hello))

    def cut_off(self) -> None:
        """Lose contact with everything it holds."""
        self.away = True
        if self.session is not None:
            self.excused |= set(self.session.running)

    async def come_back(self) -> None:
        """As a new process, after a power cut."""
        self.incarnation += 1
        self.excused |= set(self.session.running) if self.session else set()
        await self.hello()
        self.away = False

    # --- loops -----------------------------------------------------------------------------------

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(RENEWS_EVERY)
            if not self.away:
                with suppress(MitosisError):
                    await self._renew()

    async def _claim_for_ever(self) -> None:
        while True:
            session = self.session
            free = session.workers - len(session.running) if session else 0
            if session is None or not session.ready or session.ending or free <= 0 or self.away:
                await asyncio.sleep(0.1)
                continue
            try:
                await self._claim(session, free)
            except MitosisError:
                await asyncio.sleep(0.3)

    async def _claim(self, session: Session, free: int) -> None:
        claim = ClaimTasks(
            epoch=session.epoch,
            claim_seq=session.sequence + 1,
            acked_seq=session.sequence,
            max_tasks=free,
            wait_seconds=CLAIM_WAITS,
        )
        answer = await self.api.claim(claim)
        if self.away or self.session is not session:
            self.excused |= {task.task_id for task in answer.tasks}
            return
        session.sequence += 1
        if answer.standing is not LeaseStanding.ACTIVE:
            session.ending = True
        for task in answer.tasks:
            if task.task_id not in session.running:
                session.running[task.task_id] = task
                self._spawn(self._run(session, task))
        if not answer.tasks:
            await asyncio.sleep(0.1)

    async def _run(self, session: Session, task: ClaimedTask) -> None:
        self.begun.append(task.task_id)
        spec = msgspec.json.decode(task.spec)
        await asyncio.sleep(float(spec["arguments"][0]))
        await self._report(session, task, Outcome.SUCCEEDED)

    async def _report(self, session: Session, task: ClaimedTask, outcome: Outcome) -> None:
        report = TaskReport(task_id=task.task_id, attempt=task.attempt, outcome=outcome)
        while self.session is session:
            if not self.away:
                try:
                    answer = await self.api.report(session.epoch, [msgspec.json.encode(report)])
                except MitosisError:
                    pass
                else:
                    if answer.statuses[0] is ReportStatus.COMMITTED:
                        self.committed.append(task.task_id)
                    break
            await asyncio.sleep(0.2)
        session.running.pop(task.task_id, None)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the lease -------------------------------------------------------------------------------

    async def _renew(self, over: int | None = None) -> None:
        session = self.session
        renewal = Renewal(
            incarnation=self.incarnation,
            epoch=session.epoch if session else None,
            started=[
                TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in session.running.values()
            ]
            if session
            else [],
            over=over,
        )
        answer = await self.api.renew(renewal)
        if self.away or self.session is not session:
            return
        if answer.standing is LeaseStanding.GONE:
            self.session = None
            if session is None:
                await self.hello()
        elif session is not None and answer.standing is LeaseStanding.ENDING:
            await self._end(session, kill=answer.order is not None and answer.order.kill)
        elif session is None and answer.lease is not None:
            await self._adopt(answer.lease.epoch, answer.lease.standing)
        for group in answer.teardowns:
            await self._tear_down(group)

    async def _end(self, session: Session, *, kill: bool) -> None:
        session.ending = True
        if kill:
            for task in list(session.running.values()):
                await self._report(session, task, Outcome.CANCELLED)
        if not session.running:
            self.session = None
            await self._renew(over=session.epoch)

    async def _adopt(self, epoch: int, standing: LeaseStanding) -> None:
        if standing is LeaseStanding.ENDING:
            await self._renew(over=epoch)
        else:
            await self._begin(epoch, taken=True)

    async def _begin(self, epoch: int, *, taken: bool) -> None:
        """Take the lease, set it up, work under it. Only once for each epoch."""
        if self.session is not None and self.session.epoch == epoch:
            return
        grants = self.api.grant if taken else self.api.take
        grant = await until_reached(lambda: grants(epoch))
        plan = grant.worker_allocation_plan
        session = self.session = Session(epoch, grant.task_group_id, plan.worker_count)
        try:
            if grant.environment_state != "ready":
                for event in ("preparing", "prepared"):
                    await self._change(session.group, event, epoch)
        except MitosisError:
            if self.session is session:
                self.session = None
            raise
        session.ready = True

    async def _tear_down(self, group: UUID) -> None:
        if self.session is not None and self.session.group == group:
            return
        with suppress(MitosisError):
            for event in ("tear_down", "cleaned"):
                await self._change(group, event)

    async def _change(self, group: UUID, event: str, epoch: int | None = None) -> None:
        now = datetime.now(UTC)
        ended = event in ("prepared", "cleaned")
        hook = HookReport.model_validate(
            {"state": "succeeded", "started_at": now, "finished_at": now}
        )
        facts = {
            "event": event,
            "epoch": epoch,
            "fingerprint": "f",
            "hook": hook if ended else None,
        }
        change = EnvironmentChange.model_validate(facts)
        await until_reached(lambda: self.api.change_environment(group, change))

    # --- commands of Temporal --------------------------------------------------------------------

    async def prepare_environment(self, command: HostCommand) -> HookOutcome:
        assert command.epoch is not None
        try:
            async with heartbeats():
                await self._begin(command.epoch, taken=False)
        except MitosisError:
            return HookOutcome(verdict=HookVerdict.LEASE_LOST)
        return HookOutcome(verdict=HookVerdict.READY)

    async def run_lease(self, command: HostCommand) -> LeaseOutcome:
        """Watch the session: it works by itself."""
        try:
            async with heartbeats():
                while self.session is not None and self.session.epoch == command.epoch:
                    if self.session.ending and not self.session.running:
                        return LeaseOutcome(end=LeaseEnd.ENDING)
                    await asyncio.sleep(0.3)
        except asyncio.CancelledError:
            session = self.session
            ending = session is not None and session.epoch == command.epoch and session.ending
            return LeaseOutcome(end=LeaseEnd.ENDING if ending else LeaseEnd.DETACHED)
        return LeaseOutcome(end=LeaseEnd.GONE)

    async def clean_environment(self, command: HostCommand) -> HookOutcome:
        async with heartbeats():
            await self._tear_down(command.task_group_id)
        return HookOutcome(verdict=HookVerdict.CLEANED)
