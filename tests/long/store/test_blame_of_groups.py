"""Random fleets of good and broken hosts that serve several task groups, against the rules of blame (C-33).

Offers, leases and ends are those of real rounds; hosts are as in :mod:`tests.support.fleet_machine`. The test
knows which host is broken and which task is. Good hosts fall silent and come back, as the same process or
a new one. Whatever the order:

* every task ends, and a broken one ends as failed;
* a good host is never quarantined;
* a task that is not broken fails for good at most four times on each broken host of its group, unless for
  a while no good host was there that could try it: none was in contact within three minutes, or they worked
  for task groups with more to do;
* nothing stands still for long while a good host is there.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mitosis.contracts.errors import LeaseLost
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask, TaskReport
from mitosis.store.leases.look import look
from tests.support.campaigns import World, failed, succeeded, world
from tests.support.examples import examples
from tests.support.fleet_machine.hosts import MachineHost
from tests.support.fleet_machine.machine import Machine, emptied
from tests.support.fleet_machine.oracle import Facts, KnownGroup, LeaseRow

STEPS = 600
WORK_SECONDS = 1.0
"""A step in which a host reports takes so long; another one until the next look."""
LOOK_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 240.0
DOUBTED_SECONDS = 75.0
"""A failure is doubted for 60 s; looks are 10 s apart."""
AWAITED_SECONDS = 180.0
LOST_SECONDS = 30.0
"""A silent host is given up after so long."""
STREAK = 4
"""Fewer than the five failures for which a host is suspected."""


@dataclass(frozen=True)
class GroupPlan:
    """One task group."""

    tasks: int
    broken: frozenset[int]
    retries: int
    workers: int
    priority: int
    at: int
    """It is submitted in this step."""
    most_hosts: int | None = None


@dataclass(frozen=True)
class Plan:
    """One fleet."""

    groups: tuple[GroupPlan, ...]
    bad_after: tuple[int | None, ...]
    """Of each host: the number of tasks after which it fails everything; None: it is good."""
    bad_for: tuple[frozenset[int], ...]
    """Of each such host: the task groups whose tasks it fails."""
    silent: tuple[tuple[int, float, bool] | None, ...]
    """Of each host, if it is good: it is silent from this step on, for so many seconds, then restarted."""
    seed: int


GROUP_PLANS = st.builds(
    GroupPlan,
    tasks=st.integers(1, 30),
    broken=st.just(frozenset()) | st.frozensets(st.integers(0, 29), max_size=5),
    retries=st.sampled_from([0, 0, 1, 2]),
    workers=st.integers(1, 8),
    priority=st.sampled_from([0, 0, 1]),
    at=st.sampled_from([0, 0, 1, 3, 10]),
    most_hosts=st.sampled_from([None, None, 1, 2]),
)
ALL = frozenset(range(3))
PLANS = st.builds(
    Plan,
    groups=st.lists(GROUP_PLANS, min_size=1, max_size=3).map(tuple),
    bad_after=st.lists(st.sampled_from([None, None, 0, 0, 3, 9]), min_size=2, max_size=3).map(
        tuple
    ),
    bad_for=st.tuples(*[st.just(ALL) | st.frozensets(st.integers(0, 2), min_size=1)] * 3),
    silent=st.tuples(
        *[
            st.none()
            | st.tuples(st.integers(0, 12), st.sampled_from([20.0, 60.0, 120.0]), st.booleans())
        ]
        * 3
    ),
    seed=st.integers(0, 2**32),
)


IDLE = Plan(
    groups=(
        GroupPlan(tasks=15, broken=frozenset(), retries=0, workers=1, priority=0, at=3),
        GroupPlan(tasks=19, broken=frozenset({7}), retries=1, workers=3, priority=0, at=0),
        GroupPlan(tasks=16, broken=frozenset({2}), retries=1, workers=1, priority=1, at=1),
    ),
    bad_after=(9, None),
    bad_for=(ALL, ALL),
    silent=((9, 120.0, False), (12, 20.0, False), None),
    seed=1916,
)
"""The only good host is idle for another task group, and nobody may take it as long as others are awaited."""

SWAPPED = Plan(
    groups=(
        GroupPlan(tasks=8, broken=frozenset(), retries=0, workers=8, priority=0, at=0),
        GroupPlan(tasks=8, broken=frozenset(), retries=0, workers=8, priority=0, at=0),
    ),
    bad_after=(0, 0),
    bad_for=(frozenset({0}), frozenset({1})),
    silent=(None, None, None),
    seed=3,
)
"""Each host is right for the task group of the other one, and suspected for its own."""
FULL = Plan(
    groups=(
        GroupPlan(
            tasks=20, broken=frozenset(), retries=0, workers=6, priority=0, at=0, most_hosts=1
        ),
    ),
    bad_after=(0, None),
    bad_for=(ALL, ALL),
    silent=(None, None, None),
    seed=0,
)
"""The broken host takes the only place of its task group."""


@dataclass
class Running:
    """A task group while the fleet runs."""

    number: int
    plan: GroupPlan
    known: KnownGroup
    tasks: dict[int, int]
    """Task → its number in the plan."""
    failed: set[int] = field(default_factory=set)
    """Tasks that are not broken and have failed for good."""
    lost: set[int] = field(default_factory=set)
    """Those of them that a good host could have tried."""
    unwatched_at: float | None = None
    """When no good host could try its tasks for the last time."""

    def is_broken(self, task_id: int) -> bool:
        return self.tasks[task_id] in self.plan.broken


@dataclass
class Fleet:
    """Machine, plan, and what the test counts."""

    machine: Machine
    plan: Plan
    random: Random
    order: list[UUID] = field(default_factory=list)
    groups: dict[UUID, Running] = field(default_factory=dict)
    done: Counter[UUID] = field(default_factory=Counter)
    back_at: dict[UUID, float] = field(default_factory=dict)
    clock: float = 0.0
    runs: defaultdict[int, list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Of each task: when and on which host it failed."""
    due_in: float | None = None

    @property
    def w(self) -> World:
        return self.machine.w

    def is_good(self, host: UUID, group: Running | None = None) -> bool:
        """Whether it never fails a task of the group that is not broken; without one: of any group."""
        index = self.order.index(host)
        is_bad_for = group is None or group.number in self.plan.bad_for[index]
        return self.plan.bad_after[index] is None or not is_bad_for

    def fails(self, host: UUID, group: Running) -> bool:
        after = self.plan.bad_after[self.order.index(host)]
        return not self.is_good(host, group) and after is not None and self.done[host] >= after

    async def begin(self) -> None:
        for _ in self.plan.bad_after:
            host = await self.machine.create_host(frozenset(), 8, {"alice": "write"})
            self.order.append(host)

    async def submit(self, number: int, plan: GroupPlan) -> None:
        known = KnownGroup(
            id=UUID(int=0),
            name=f"g{number}",
            created=number,
            user_group="alice",
            priority=plan.priority,
            named=False,
            tags=frozenset(),
            match="all",
            workers=plan.workers,
            exclusive=False,
            max_managers=plan.most_hosts,
        )
        await self.machine.create_group(known)
        retry = RetryPolicy(max_attempts=plan.retries + 1)
        tasks = [TaskSubmission(command=["x"], retry=retry)] * plan.tasks
        answer = await self.w.submit_tasks(known.id, tasks)
        ids = {task: index for index, task in enumerate(sorted(answer.task_ids))}
        self.groups[known.id] = Running(number, plan, known, ids)

    async def step(self, number: int) -> None:
        for index, plan in enumerate(self.plan.groups):
            if plan.at == number:
                await self.submit(index, plan)
        await self._silence(number)
        facts = await self.machine.facts()
        self._note_who_could_try(facts)
        reported = await self._turns(facts)
        await self._pass(WORK_SECONDS if reported else LOOK_SECONDS)
        is_due = self.due_in is not None and self.due_in <= 0.0
        is_poked = ("scheduler", None) in await self.w.pokes()
        if is_due or is_poked or (await look(self.w.store)).what:
            answer = await self.machine.round()
            self.due_in = answer.next_round_in_seconds
        for group in self.groups.values():
            await self._note_lost(group)
        await self._no_good_host_is_quarantined()

    async def _pass(self, seconds: float) -> None:
        await self.machine.pass_time(seconds)
        self.clock += seconds
        self.due_in = None if self.due_in is None else self.due_in - seconds

    async def _silence(self, number: int) -> None:
        for host, silent in zip(self.order, self.plan.silent, strict=False):
            known = self.machine.oracle.hosts[host]
            if silent is not None and silent[0] == number and self.is_good(host):
                await self.machine.lose(known)
                self.back_at[host] = self.clock + silent[1]
            elif silent is not None and self.back_at.get(host, self.clock + 1) <= self.clock:
                del self.back_at[host]
                await self.machine.come_back(known, restarted=silent[2])

    async def _turns(self, facts: Facts) -> bool:
        """Let each host act, and report some of what it runs; return whether any did."""
        reported = False
        hosts = list(self.machine.hosts.values())
        self.random.shuffle(hosts)
        for host in hosts:
            known = {group.known.id: group.known for group in self.groups.values()}
            takes = self.random.random() < 0.7
            if not self._is_just_silent(host):
                await host.act(facts, known, takes=takes)
            reported |= await self._report(host)
        return reported

    def _is_just_silent(self, host: MachineHost) -> bool:
        since = self.machine.oracle.hosts[host.id].silent_since
        return since is not None and self.machine.now - since < LOST_SECONDS

    async def _report(self, host: MachineHost) -> bool:
        if not host.reachable or not host.running:
            return False
        count = self.random.randint(1, len(host.running))
        done, host.running = host.running[:count], host.running[count:]
        try:
            await host.agent.report(*(self._end_of(host, task) for task in done))
        except LeaseLost:
            host.running = []
        return True

    def _end_of(self, host: MachineHost, task: ClaimedTask) -> TaskReport:
        group = next(group for group in self.groups.values() if task.task_id in group.tasks)
        fails = self.fails(host.id, group)
        self.done[host.id] += 1
        facts: dict[str, Any] = {"started_at": self.clock + 1.0, "finished_at": self.clock + 1.5}
        if not fails and not group.is_broken(task.task_id):
            return succeeded(task, **facts)
        self.runs[task.task_id].append((self.clock, self.order.index(host.id)))
        return failed(task, exit_code=42, **facts)

    # --- what must hold ---------------------------------------------------------------------------

    def _note_who_could_try(self, facts: Facts) -> None:
        for group in self.groups.values():
            if not any(self._could_try(host, group, facts) for host in self.order):
                group.unwatched_at = self.clock

    def _could_try(self, host: UUID, group: Running, facts: Facts) -> bool:
        if not self.is_good(host, group):
            return False
        since = self.machine.oracle.hosts[host].silent_since
        if since is not None:
            return self.machine.now - since < AWAITED_SECONDS - LOOK_SECONDS
        return not any(
            lease.host == host and lease.group != group.known.id and self._is_busy(lease, facts)
            for lease in facts.leases.values()
            if lease.state != "ended"
        )

    def _is_busy(self, lease: LeaseRow, facts: Facts) -> bool:
        works = lease.state != "offered" and bool(facts.claimable.get(lease.group))
        return works and not self.fails(lease.host, self.groups[lease.group])

    async def _note_lost(self, group: Running) -> None:
        rows = await self.w.rows(
            "SELECT task_id FROM task_result JOIN task_groups ON id = group_id"
            " WHERE uuid = %s AND state = 'failed'",
            group.known.id,
        )
        gone = {row["task_id"] for row in rows if not group.is_broken(row["task_id"])}
        new = gone - group.failed
        group.failed |= new
        unwatched = group.unwatched_at
        excused = unwatched is not None and self.clock - unwatched <= DOUBTED_SECONDS
        if not new or excused or group.plan.broken:
            return
        group.lost |= new
        bad = sum(1 for after in self.plan.bad_after if after is not None)
        assert len(group.lost) <= STREAK * bad, (
            f"{group.known.name} loses {new} at {self.clock}, {len(group.lost)} by now; {self.plan};"
            f" runs {[self.runs[task] for task in sorted(new)]}"
        )

    async def _no_good_host_is_quarantined(self) -> None:
        rows = await self.w.rows(
            "SELECT m.uuid, g.uuid AS task_group FROM host_failures AS f"
            " JOIN managers AS m ON m.id = f.manager_id JOIN task_groups AS g ON g.id = f.group_id"
            " WHERE f.phase = 'quarantined'"
        )
        for row in rows:
            is_good = self.is_good(row["uuid"], self.groups[row["task_group"]])
            assert not is_good, (self.order.index(row["uuid"]), self.plan)

    async def unfinished(self) -> int:
        return int(await self.w.value("SELECT count(*) FROM open_task"))


async def run(it: Fleet) -> None:
    last = max(plan.at for plan in it.plan.groups)
    before: object = None
    moved_at, unfinished = 0.0, 0
    for number in range(STEPS):
        await it.step(number)
        unfinished = await it.unfinished()
        if not unfinished and number >= last:
            return
        now = (unfinished, sum(it.done.values()), len(it.back_at), len(it.groups))
        moved_at, before = (it.clock if now != before else moved_at), now
        if any(it.is_good(host) for host in it.order):
            assert it.clock - moved_at <= LONGEST_PAUSE_SECONDS, it.plan
    raise AssertionError(f"{unfinished} tasks have not ended: {it.plan}")


async def check(it: Fleet) -> None:
    await it.w.check()
    for group in it.groups.values():
        rows = await it.w.rows(
            "SELECT task_id, state FROM task_result JOIN task_groups ON id = group_id WHERE uuid = %s",
            group.known.id,
        )
        ends = {row["task_id"]: row["state"] for row in rows}
        assert set(ends) == set(group.tasks)
        assert all(ends[task] == "failed" for task in ends if group.is_broken(task))


@pytest.mark.timeout(600)
@pytest.mark.spec("C-33")
async def test_random_fleets_with_several_groups_keep_the_rules_of_blame(database: str) -> None:
    async with world(database) as w:
        plans = [SWAPPED, replace(SWAPPED, bad_for=SWAPPED.bad_for[::-1]), FULL, IDLE]

        @settings(
            max_examples=examples(8),
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(PLANS)
        def collect(plan: Plan) -> None:
            plans.append(plan)

        collect()
        for plan in plans:
            await emptied(w)
            machine = Machine(w)
            await machine.begin()
            it = Fleet(machine, plan, Random(plan.seed))
            await it.begin()
            await run(it)
            await check(it)
