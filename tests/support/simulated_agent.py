"""An agent without processes: it does over the stores what the real one does over HTTP.

For tests of the control plane alone. ``reached`` is called between any two steps of a lease, so that a
test can kill something there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from activities.host import HostActivities
from mitosis.contracts.agent_http import EnvironmentChange, Hello, HookReport
from mitosis.contracts.control import (
    HookOutcome,
    HookVerdict,
    HostCommand,
    LeaseEnd,
    LeaseOutcome,
)
from mitosis.contracts.errors import LeaseLost
from mitosis.contracts.http import RegisterManager
from mitosis.contracts.temporal_names import host_task_queue
from mitosis.contracts.wire import (
    ClaimTasks,
    LeaseStanding,
    Outcome,
    Renewal,
    ReportTasks,
    TaskReport,
)
from mitosis.store.leases.granting import take_lease
from mitosis.store.managers.contact import renew
from mitosis.store.managers.environments import change_environment
from mitosis.store.managers.hello import say_hello
from mitosis.store.managers.registration import register_manager
from mitosis.store.tasks.claim import claim_tasks
from mitosis.store.tasks.report import report_tasks
from tests.support.control_plane import Stores

Reached = Callable[[str], Awaitable[None]]


async def nothing(_: str) -> None:
    """Nobody is interested."""


class SimulatedAgent:
    """Implements ``HostPort`` for one manager."""

    def __init__(self, stores: Stores, manager_id: UUID, reached: Reached = nothing) -> None:
        self.manager_id = manager_id
        self.ran: list[int] = []
        self.calls: list[str] = []
        self.setup_exit_code = 0
        self.api_reachable = asyncio.Event()
        """Cleared: its calls of the API hang, while Temporal still hears its heartbeats."""
        self.api_reachable.set()
        self._stores = stores
        self._reached = reached

    @classmethod
    async def register(cls, stores: Stores, reached: Reached = nothing) -> "SimulatedAgent":
        manager_id, _ = await register_manager(stores.store, RegisterManager(), stores.admin)
        hello = Hello(
            incarnation=1,
            machine_id="machine",
            boot_id="boot",
            host_name="simulated",
            cores=(0, 1),
            agent_version="0",
        )
        await say_hello(stores.store, manager_id, hello)
        return cls(stores, manager_id, reached)

    def worker(self, client: Client) -> Worker:
        host = HostActivities(self)
        activities = [host.prepare_environment, host.run_lease, host.clean_environment]
        queue = host_task_queue(self.manager_id)
        return Worker(client, task_queue=queue, activities=activities)

    async def keep_in_contact(self) -> None:
        """Renew until cancelled, as an idle agent does too."""
        while True:
            await self.api_reachable.wait()
            await renew(self._stores.store, self.manager_id, Renewal(incarnation=1))
            await asyncio.sleep(0.5)

    async def prepare_environment(self, command: HostCommand) -> HookOutcome:
        self.calls.append("prepare")
        with _heartbeats():
            await self._reached("offered")
            assert command.epoch is not None
            try:
                await take_lease(self._stores.store, self.manager_id, command.epoch)
            except LeaseLost:
                return HookOutcome(verdict=HookVerdict.LEASE_LOST)
            await self._change(command, "preparing")
            await self._reached("preparing")
            if self.setup_exit_code:
                await self._change(command, "setup_failed", "failed")
                await self._change(command, "cleaned", "succeeded")
                return HookOutcome(verdict=HookVerdict.FAILED)
            await self._change(command, "prepared", "succeeded")
            await self._reached("prepared")
        return HookOutcome(verdict=HookVerdict.READY)

    async def run_lease(self, command: HostCommand) -> LeaseOutcome:
        self.calls.append("run")
        assert command.epoch is not None
        with _heartbeats():
            await self._reached("attached")
            try:
                return LeaseOutcome(end=await self._work(command.epoch))
            except asyncio.CancelledError:
                standing = await self._standing(command.epoch)
                ending = standing is LeaseStanding.ENDING
                return LeaseOutcome(end=LeaseEnd.ENDING if ending else LeaseEnd.DETACHED)

    async def clean_environment(self, command: HostCommand) -> HookOutcome:
        self.calls.append("clean")
        with _heartbeats():
            await self._reached("to clean")
            await self._change(command, "tear_down")
            await self._reached("tearing down")
            await self._change(command, "cleaned", "succeeded")
        return HookOutcome(verdict=HookVerdict.CLEANED)

    async def _work(self, epoch: int) -> LeaseEnd:
        sequence = 0
        while (standing := await self._standing(epoch)) is LeaseStanding.ACTIVE:
            sequence += 1
            claim = ClaimTasks(epoch=epoch, claim_seq=sequence, acked_seq=sequence - 1, max_tasks=2)
            answer = await claim_tasks(self._stores.store, self.manager_id, claim)
            if not answer.tasks:
                await asyncio.sleep(0.1)
                continue
            await self._reached("claimed")
            reports = [
                TaskReport(task_id=t.task_id, attempt=t.attempt, outcome=Outcome.SUCCEEDED)
                for t in answer.tasks
            ]
            self.ran += [task.task_id for task in answer.tasks]
            await report_tasks(
                self._stores.store, self.manager_id, ReportTasks(epoch=epoch, reports=reports)
            )
            await self._reached("reported")
        return LeaseEnd.ENDING if standing is LeaseStanding.ENDING else LeaseEnd.GONE

    async def _standing(self, epoch: int) -> LeaseStanding | None:
        await self.api_reachable.wait()
        renewal = Renewal(incarnation=1, epoch=epoch)
        return (await renew(self._stores.store, self.manager_id, renewal)).standing

    async def _change(self, command: HostCommand, event: str, hook: str | None = None) -> None:
        now = datetime.now(UTC)
        report = {"state": hook, "started_at": now, "finished_at": now} if hook else None
        change = EnvironmentChange.model_validate(
            {
                "event": event,
                "epoch": command.epoch,
                "fingerprint": "f",
                "hook": HookReport.model_validate(report) if report else None,
            }
        )
        await change_environment(self._stores.store, self.manager_id, command.task_group_id, change)


@contextmanager
def _heartbeats() -> Iterator[None]:
    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.5)

    task = asyncio.get_running_loop().create_task(beat())
    try:
        yield
    finally:
        task.cancel()
