"""Port implementations in memory for timer tests: the contracts of the ports, the server's own clock.

Only tests of timers use them: the time-skipping server cannot drive the clock of PostgreSQL.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from mitosis.contracts.control import (
    AssignAnswer,
    Cancel,
    Complete,
    DiscardAnswer,
    EnvironmentView,
    GroupView,
    LeaseTurn,
    LeaseView,
    ManagerView,
    ReleaseAnswer,
    ReleaseReason,
    ReleaseRequest,
    ReleaseStatus,
    VerbRequest,
)
from mitosis.contracts.errors import DatabaseUnavailable, NotFound
from mitosis.contracts.lifecycle import (
    TASK_GROUP,
    EnvironmentState,
    LeaseState,
    TaskGroupEvent,
    TaskGroupResult,
    TaskGroupState,
)
from mitosis.contracts.manager_state import ManagerFacts, derived_manager_state

Clock = Callable[[], Awaitable[datetime]]
CHUNK = 10


@dataclass
class Group:
    """A task group as PostgreSQL would keep it."""

    uuid: UUID = field(default_factory=uuid4)
    name: str = "campaign"
    state: TaskGroupState = TaskGroupState.OPEN
    ready: int = 0
    running: int = 0
    cancelled: int = 0
    succeeded: int = 0
    auto_close_after: timedelta | None = None
    last_submitted_at: datetime | None = None
    close_deadline: datetime | None = None
    discarding: bool = False
    result: TaskGroupResult | None = None
    live_leases: int = 0
    setup_failed: bool = False
    closed_at: datetime | None = None
    chain: tuple[str, ...] = ()

    @property
    def unfinished(self) -> int:
        return self.ready + self.running

    def view(self, now: datetime) -> GroupView:
        close_at = (
            self.last_submitted_at + self.auto_close_after
            if self.last_submitted_at and self.auto_close_after
            else None
        )
        return GroupView(
            task_group_id=self.uuid,
            name=self.name,
            group_name="team",
            state=self.state,
            settled=self.result is not None,
            result=self.result,
            total=self.unfinished + self.cancelled + self.succeeded,
            unfinished=self.unfinished,
            cancelled=self.cancelled,
            succeeded=self.succeeded,
            auto_close_in_seconds=_left(close_at, now),
            close_deadline_in_seconds=None if self.discarding else _left(self.close_deadline, now),
            discarding=self.discarding,
            discardable=self.discarding and self.ready > 0,
            live_leases=self.live_leases,
            setup_failed=self.setup_failed and not self.discarding,
            chain=self.chain,
        )


class MemoryGroups:
    """Implements ``TaskGroupPort``."""

    def __init__(self, clock: Clock, *groups: Group) -> None:
        self._clock = clock
        self.groups = {group.uuid: group for group in groups}
        self.calls: list[str] = []
        self.store_away = False

    async def observe_task_group(self, task_group_id: UUID) -> GroupView:
        if self.store_away:
            raise DatabaseUnavailable
        self.calls.append("observe")
        group = self.groups.get(task_group_id)
        if group is None:
            return GroupView(task_group_id=task_group_id, exists=False)
        return group.view(await self._clock())

    async def apply(self, request: VerbRequest) -> GroupView:
        self.calls.append(request.verb.kind)
        group = self.groups.get(request.task_group_id)
        if group is None:
            raise NotFound("no such task group")
        now, verb = await self._clock(), request.verb
        event = TaskGroupEvent(verb.kind)
        if isinstance(verb, Complete):
            group.discarding = group.discarding or verb.force
            if group.state is TaskGroupState.COMPLETE:
                return group.view(now)
            event = TaskGroupEvent.CLOSE
        goal = {
            TaskGroupEvent.CLOSE: TaskGroupState.CLOSED,
            TaskGroupEvent.REOPEN: TaskGroupState.OPEN,
            TaskGroupEvent.CANCEL: TaskGroupState.CANCELLED,
        }[event]
        if group.state is not goal:
            group.state = TASK_GROUP.after(group.state, event)
        if isinstance(verb, Cancel):
            group.discarding = True
        return group.view(now)

    async def close_if_inactive(self, task_group_id: UUID) -> GroupView:
        self.calls.append("close_if_inactive")
        group, now = self.groups[task_group_id], await self._clock()
        view = group.view(now)
        due = (view.auto_close_in_seconds, view.close_deadline_in_seconds)
        if group.state is TaskGroupState.OPEN and any(d is not None and d <= 0 for d in due):
            group.state, group.closed_at = TaskGroupState.CLOSED, now
        if group.close_deadline and group.close_deadline <= now:
            group.discarding = group.unfinished > 0
        return group.view(now)

    async def end_after_failed_setups(self, task_group_id: UUID) -> GroupView:
        self.calls.append("end_after_failed_setups")
        group = self.groups[task_group_id]
        if group.setup_failed:
            group.state, group.discarding = TaskGroupState.CLOSED, True
        return group.view(await self._clock())

    async def discard(self, task_group_id: UUID) -> DiscardAnswer:
        self.calls.append("discard")
        group = self.groups[task_group_id]
        some = min(group.ready, CHUNK)
        group.ready -= some
        group.cancelled += some
        return DiscardAnswer(cancelled=some, remaining=group.ready > 0)

    async def finalize(self, task_group_id: UUID) -> GroupView:
        self.calls.append("finalize")
        group = self.groups[task_group_id]
        if group.state is TaskGroupState.CLOSED and not group.unfinished:
            group.state = TaskGroupState.COMPLETE
        return group.view(await self._clock())

    async def settle(self, task_group_id: UUID) -> GroupView:
        self.calls.append("settle")
        group, now = self.groups[task_group_id], await self._clock()
        if group.view(now).settleable:
            cancelled = group.state is TaskGroupState.CANCELLED
            ended = TaskGroupResult.SETUP_FAILED if group.setup_failed else TaskGroupResult.SUCCESS
            group.result = TaskGroupResult.CANCELLED if cancelled else ended
        return group.view(now)


class RefusingGroups(MemoryGroups):
    """The guard of the settlement disagrees with the decision some times: nothing changes."""

    refusals = 3

    def __init__(self, clock: Clock, *groups: Group) -> None:
        super().__init__(clock, *groups)
        self.asked_at: list[datetime] = []

    async def settle(self, task_group_id: UUID) -> GroupView:
        self.asked_at.append(await self._clock())
        if len(self.asked_at) > self.refusals:
            return await super().settle(task_group_id)
        return self.groups[task_group_id].view(self.asked_at[-1])


@dataclass
class Lease:
    epoch: int
    task_group_id: UUID
    state: LeaseState = LeaseState.OFFERED
    alive_until: datetime | None = None
    group_state: TaskGroupState = TaskGroupState.OPEN
    turn: tuple[str, datetime] | None = None
    """What comes next by the clock, and when."""


@dataclass
class Host:
    """A manager as PostgreSQL would keep it."""

    uuid: UUID = field(default_factory=uuid4)
    name: str = "host-1"
    lease: Lease | None = None
    environments: dict[UUID, EnvironmentState] = field(default_factory=dict)
    last_contact_at: datetime | None = None
    offline: bool = False
    host_lost_after: timedelta = timedelta(seconds=90)
    released: list[tuple[int | None, ReleaseReason, ReleaseStatus]] = field(default_factory=list)


class MemoryHost:
    """Implements ``ManagerPort`` and ``SchedulerPort`` for one host."""

    def __init__(self, clock: Clock, host: Host) -> None:
        self._clock = clock
        self.host = host
        self.rounds = 0
        self.api_away = False
        """No API is there to notice contact: no silence is a loss."""
        self.store_away = False
        self.in_contact = False
        """The agent calls all the time, as far as anybody can see."""
        self.decisions: list[datetime] = []
        """When the scheduler was asked to decide about the lease; it is renewed for an hour then."""
        self.open_offers = 0
        """Offers of every round that no host takes."""
        self.due_at: datetime | None = None
        """Something needs a round at this time, and until then a failure is doubted."""
        self.late: timedelta | None = None
        """How long after that time the round came."""

    async def contact(self) -> None:
        """What any authenticated call of the agent does."""
        now, lease = await self._clock(), self.host.lease
        self.host.last_contact_at, self.host.offline = now, False
        if lease and lease.state in (LeaseState.ACTIVE, LeaseState.ENDING):
            lease.alive_until = now + self.host.host_lost_after

    async def take(self, epoch: int) -> bool:
        """OFFERED → ACTIVE."""
        lease = self.host.lease
        if lease is None or lease.epoch != epoch:
            return False
        if lease.state is LeaseState.OFFERED:
            lease.state = LeaseState.ACTIVE
        await self.contact()
        return lease.state is LeaseState.ACTIVE

    def _check(self) -> None:
        if self.store_away:
            raise DatabaseUnavailable

    async def observe_manager(self, manager_id: UUID) -> ManagerView:
        self._check()
        if self.in_contact and not self.api_away:
            await self.contact()
        now, host, lease = await self._clock(), self.host, self.host.lease
        silent = now - (host.last_contact_at or now)
        lost_in = None if host.offline else (host.host_lost_after - silent).total_seconds()
        return ManagerView(
            manager_id=manager_id,
            name=host.name,
            state=derived_manager_state(self._facts(now)),
            online=not host.offline and silent <= timedelta(seconds=10),
            lost_in_seconds=lost_in,
            lease=LeaseView(
                epoch=lease.epoch,
                state=lease.state,
                task_group_id=lease.task_group_id,
                group_state=lease.group_state,
                alive_in_seconds=_left(lease.alive_until, now),
                turn=_turn(lease, now),
            )
            if lease
            else None,
            environments=tuple(
                EnvironmentView(
                    task_group_id=group,
                    state=state,
                    cleanable=(lease is None or lease.task_group_id != group),
                )
                for group, state in host.environments.items()
                if state is not EnvironmentState.GONE
            ),
        )

    def _facts(self, now: datetime) -> ManagerFacts:
        host, lease = self.host, self.host.lease
        return ManagerFacts(
            offline=host.offline,
            silent_seconds=(now - (host.last_contact_at or now)).total_seconds(),
            host_lost_after_seconds=host.host_lost_after.total_seconds(),
            draining=False,
            lease_state=lease.state if lease else None,
            alive_in_seconds=_left(lease.alive_until, now) if lease else None,
            lease_environment=host.environments.get(lease.task_group_id) if lease else None,
            tearing_down=EnvironmentState.TEARING_DOWN in host.environments.values(),
        )

    async def decide_leases(self) -> None:
        self._check()
        now = await self._clock()
        self.decisions.append(now)
        if self.host.lease is not None:
            self.host.lease.turn = ("affinity", now + timedelta(hours=1))

    async def release(self, request: ReleaseRequest) -> ReleaseAnswer:
        self._check()
        answer = await self._release(request)
        self.host.released.append((request.epoch, request.reason, answer.status))
        return answer

    async def _release(self, request: ReleaseRequest) -> ReleaseAnswer:
        host, now = self.host, await self._clock()
        lost = request.reason is ReleaseReason.LOST
        if request.epoch is not None and (host.lease is None or host.lease.epoch != request.epoch):
            return ReleaseAnswer(status=ReleaseStatus.ALREADY_ENDED)
        if lost:
            until = host.lease.alive_until if host.lease else None
            if until is None and host.last_contact_at is not None:
                until = host.last_contact_at + host.host_lost_after
            if self.api_away or (until is not None and until > now):
                return ReleaseAnswer(status=ReleaseStatus.ALIVE)
            host.offline = True
            for group in host.environments:
                host.environments[group] = EnvironmentState.OWED
        host.lease = None
        return ReleaseAnswer(status=ReleaseStatus.RELEASED)

    async def assign_round(self) -> AssignAnswer:
        self._check()
        self.rounds += 1
        if self.due_at is not None:
            return self._doubting(self.due_at - await self._clock())
        again = 10.0 if self.open_offers else None
        return AssignAnswer(offered=0, resignalled=self.open_offers, next_round_in_seconds=again)

    def _doubting(self, left: timedelta) -> AssignAnswer:
        """Answer a round while a failure is doubted, which nothing decides; later it is due all the time."""
        if left <= timedelta(0) and self.late is None:
            self.late = -left
        due = 20.0 if self.late is not None else left.total_seconds()
        return AssignAnswer(
            offered=0,
            resignalled=0,
            next_round_in_seconds=min(10.0, due),
            judged_again_in_seconds=10.0,
            due_without_judgement_in_seconds=due,
        )


def _left(until: datetime | None, now: datetime) -> float | None:
    return None if until is None else (until - now).total_seconds()


def _turn(lease: Lease, now: datetime) -> LeaseTurn | None:
    if lease.turn is None or lease.state is not LeaseState.ACTIVE:
        return None
    what, at = lease.turn
    return LeaseTurn(what=what, why=f"{what} is over", in_seconds=(at - now).total_seconds())


class MemoryRetention:
    """Counts the calls; the answer is how long to wait."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)
        self.calls = 0

    async def delete_expired(self) -> float:
        self.calls += 1
        return self._seconds.pop(0) if self._seconds else 3600.0
