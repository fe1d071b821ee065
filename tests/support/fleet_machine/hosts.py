"""Agents without processes: each does at once whatever the store orders, as long as it can reach the API."""

from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import InvalidTransition, LeaseLost, NotFound
from mitosis.contracts.wire import (
    ClaimedTask,
    LeaseStanding,
    Outcome,
    Renewal,
    TaskAttempt,
    TaskReport,
)
from mitosis.store.leases.granting import take_lease
from mitosis.store.managers.contact import renew
from mitosis.store.managers.release import release_lease
from tests.support.campaigns import Host, World, succeeded
from tests.support.fleet_machine.oracle import Facts, KnownGroup, LeaseRow

TAKES_WITHIN = 8.0
"""An offer that is older is taken, or withdrawn from a host that cannot be reached."""


@dataclass
class MachineHost:
    """One agent."""

    w: World
    agent: Host
    cores: tuple[int, ...]
    reachable: bool = True
    running: list[ClaimedTask] = field(default_factory=list)
    fails_setup: bool = False
    """The next setup."""
    failed_setups: set[UUID] = field(default_factory=set)
    """Task groups for which it has failed under this process."""

    @property
    def id(self) -> UUID:
        return self.agent.manager_id

    async def act(self, facts: Facts, group_of: dict[UUID, KnownGroup], *, takes: bool) -> None:
        """One turn: offers, setup, claims, renewal, ending, teardowns."""
        lease = next(iter(facts.on_host(self.id)), None)
        if not self.reachable:
            await self._time_out(lease)
            return
        if lease is not None and lease.epoch != self.agent.epoch and lease.state != "offered":
            self._begin(lease.epoch)
        if lease is not None and lease.state == "offered":
            if takes or lease.age > TAKES_WITHIN:
                await self._take(lease)
        elif lease is not None and lease.state == "active" and not lease.ready:
            await self._set_up(lease)
        elif lease is not None and lease.state == "active":
            await self._claim(lease, group_of[lease.group])
        await self._renew()

    async def _time_out(self, lease: LeaseRow | None) -> None:
        """What the workflow of the host does when its clocks are over."""
        reason, epoch = ReleaseReason.LOST, None
        if lease is not None:
            epoch = lease.epoch
            if lease.state == "offered":
                if lease.age <= TAKES_WITHIN:
                    return
                reason = ReleaseReason.UNREACHABLE
        request = ReleaseRequest(manager_id=self.id, epoch=epoch, reason=reason)
        await release_lease(self.w.store, request)

    async def _take(self, lease: LeaseRow) -> None:
        with suppress(LeaseLost):
            await take_lease(self.w.store, self.id, lease.epoch)
            self._begin(lease.epoch)

    def _begin(self, epoch: int) -> None:
        self.agent._begin(epoch)
        self.running = []

    async def _set_up(self, lease: LeaseRow) -> None:
        with suppress(LeaseLost, InvalidTransition, NotFound):
            facts = {"epoch": lease.epoch}
            await self.agent.environment(lease.group, "preparing", fingerprint="f", **facts)
            if not self.fails_setup:
                await self.agent.environment(lease.group, "prepared", **facts)
                return
            await self.agent.environment(lease.group, "setup_failed", **facts)
            self.fails_setup = False
            self.failed_setups.add(lease.group)
            await self._over(lease.epoch)

    async def _claim(self, lease: LeaseRow, group: KnownGroup) -> None:
        room = group.workers - len(self.running)
        if room > 0:
            tasks = (await self.agent.claim(room)).tasks
            self.running += tasks
            may = lease.lives and group.goes_on and group.has_member(self.id)
            assert may or not tasks, f"claimed for {group.name}, from which the host was taken"

    async def _renew(self, *, over: int | None = None) -> None:
        renewal = Renewal(
            incarnation=self.agent.incarnation,
            epoch=self.agent.epoch or None,
            started=[TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in self.running],
            over=over,
        )
        answer = await renew(self.w.store, self.id, renewal)
        if answer.standing is LeaseStanding.GONE:
            known, self.agent.epoch, self.running = self.agent.epoch, 0, []
            if known:
                await self._renew()
            else:
                await self.agent.hello(incarnation=self.agent.incarnation, cores=self.cores)
            return
        elif answer.standing is LeaseStanding.ENDING:
            if answer.order is not None and answer.order.kill and self.running:
                await self.agent.report(*(cancelled(task) for task in self.running))
                self.running = []
            if not self.running:
                await self._over(self.agent.epoch)
        for group in answer.teardowns:
            with suppress(InvalidTransition, NotFound):
                await self.agent.clean(group)

    async def _over(self, epoch: int) -> None:
        """Nothing runs under the lease any more, and the next renewal says so."""
        self.agent.epoch, self.running = 0, []
        await self._renew(over=epoch)

    async def finish(self, count: int) -> None:
        """Report success of some running tasks."""
        done, self.running = self.running[:count], self.running[count:]
        if done:
            await self.agent.report(*(succeeded(task) for task in done))

    async def come_back(self, *, restarted: bool) -> None:
        """The API can be reached again: by the same process, or by a new one."""
        self.reachable = True
        if restarted:
            self.agent.epoch, self.running = 0, []
            self.failed_setups.clear()
            await self.agent.hello(cores=self.cores)


def cancelled(task: ClaimedTask) -> TaskReport:
    return TaskReport(task_id=task.task_id, attempt=task.attempt, outcome=Outcome.CANCELLED)
