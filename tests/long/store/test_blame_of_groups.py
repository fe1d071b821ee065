"""Random fleets of good and broken hosts that serve several task groups, against the rules of blame (C-33).

Offers, leases and ends are those of real rounds; hosts are as in :mod:`tests.support.fleet_machine`. The test
knows which host is broken and which task is. Good hosts fall silent and come back, as the same process or
a new one; hosts are drained, resumed and repaired, task groups are closed, cancelled and changed. Whatever
the order:

* every task ends, and a broken one ends as failed, or cancelled with its group;
* a good host is never quarantined;
* a task that is not broken fails for good at most four times on each broken host of its group, unless for
  a while no good host was there that could try it: none was in contact within three minutes, or they worked
  for other task groups for three minutes after the last failure; with more than one broken task in the group
  they may be to blame;
* nothing stands still for long while a host is there.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings

from mitosis.contracts.errors import LeaseLost
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask, TaskReport
from mitosis.store.leases.look import look
from mitosis.store.managers.workers import record_workers
from tests.support.blame_plans import (
    DRAINED,
    FOUR,
    FULL,
    HICCUP,
    IDLE,
    LONG,
    PLANS,
    SWAPPED,
    GroupPlan,
    Plan,
)
from tests.support.campaigns import World, failed, succeeded, world
from tests.support.examples import examples
from tests.support.fleet_machine.hosts import MachineHost
from tests.support.fleet_machine.machine import Machine, emptied
from tests.support.fleet_machine.oracle import Facts, KnownGroup

STEPS = 600
WORK_SECONDS = 1.0
"""A step in which a host reports takes so long; another one until the next look."""
LOOK_SECONDS = 10.0
QUIET_SECONDS = 60.0
"""Between looks while tasks run and no host is in doubt."""
LONGEST_PAUSE_SECONDS = 240.0
DOUBTED_SECONDS = 75.0
"""A failure is doubted for 60 s; looks are 10 s apart."""
AWAITED_SECONDS = 180.0
EXCUSED_SECONDS = 600.0
"""So long a host is believed for which no other one was there."""
RESUMED_IN_STEP = 60
"""Hosts that are drained serve again from then on."""
STREAK = 4
"""Fewer than the five failures for which a host is suspected."""


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
    believed_until: float = 0.0
    """A host is excused until then because no good one could try its tasks."""
    excused: set[UUID] = field(default_factory=set)
    failed_at: dict[UUID, float] = field(default_factory=dict)
    """Of each host: when a task failed there that is not broken."""
    suspected: set[UUID] = field(default_factory=set)

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
    began: dict[tuple[UUID, int, int], tuple[float, bool]] = field(default_factory=dict)
    """When each attempt was first seen on its host, and whether it fails because of it."""
    quiet: bool = False
    """No host is in doubt."""
    repaired: set[UUID] = field(default_factory=set)

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
        broken = after is not None and self.done[host] >= after and host not in self.repaired
        return broken and not self.is_good(host, group)

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
        await self._give_due(number)
        facts = await self.machine.facts()
        self._note_who_could_try(facts)
        reported = await self._turns(facts)
        runs = any(host.running for host in self.machine.hosts.values() if host.reachable)
        rests = self.quiet and runs and not self.back_at and number > RESUMED_IN_STEP
        await self._pass(WORK_SECONDS if reported else QUIET_SECONDS if rests else LOOK_SECONDS)
        is_due = self.due_in is not None and self.due_in <= 0.0
        is_poked = ("scheduler", None) in await self.w.pokes()
        if is_due or is_poked or (await look(self.w.store)).what:
            answer = await self.machine.round()
            self.due_in = answer.next_round_in_seconds
        self.quiet = True
        for group in self.groups.values():
            await self._note_phases(group, facts)
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

    async def _give_due(self, number: int) -> None:
        if number == RESUMED_IN_STEP:
            for known in self.machine.oracle.hosts.values():
                if known.draining:
                    await self.machine.resume(known)
        for at, verb, index in self.plan.verbs:
            if at == number:
                await self._give(verb, index)

    async def _give(self, verb: str, index: int) -> None:
        """Do that to a host or a task group, if there is one with this number."""
        if verb in ("drain", "resume", "repair", "no workers") and index < len(self.order):
            known = self.machine.oracle.hosts[self.order[index]]
            match verb:
                case "no workers":
                    await self._pause(self.machine.hosts[known.id])
                case "drain":
                    await self.machine.drain(known, now=False)
                case "resume":
                    await self.machine.resume(known)
                case _:
                    self.repaired.add(known.id)
        for group in [one for one in self.groups.values() if one.number == index]:
            if verb in ("one", "four"):
                most = 1 if verb == "one" else 4
                await self.machine.update(group.known, max_managers=most)
            elif verb in ("close", "reopen", "cancel"):
                await self.machine.end_group(group.known, verb)
                await self.machine._follow(group.known.id)

    async def _pause(self, host: MachineHost) -> None:
        """Let it fail to start workers."""
        if host.reachable and host.agent.epoch:
            await record_workers(self.machine.w.store, host.id, host.agent.epoch, "no memory")

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
        return since is not None and self.machine.now - since < self.plan.lost_after

    async def _report(self, host: MachineHost) -> bool:
        if not host.reachable or not host.running:
            return False
        ready = [task for task in host.running if self._is_over(host, task)]
        if not ready:
            return False
        done = ready[: self.random.randint(1, len(ready))]
        host.running = [task for task in host.running if task not in done]
        try:
            await host.agent.report(*(self._end_of(host, task) for task in done))
        except LeaseLost:
            host.running = []
        return True

    def _is_over(self, host: MachineHost, task: ClaimedTask) -> bool:
        group = next(group for group in self.groups.values() if task.task_id in group.tasks)
        began, fails = self._begin(host, group, task)
        is_long = group.plan.all_long or group.tasks[task.task_id] % 5 == 0
        return fails or not is_long or self.clock - began >= group.plan.long_seconds

    def _begin(self, host: MachineHost, group: Running, task: ClaimedTask) -> tuple[float, bool]:
        """Return when the attempt began, and whether it fails: what runs goes on when a host breaks."""
        key = (host.id, task.task_id, task.attempt)
        return self.began.setdefault(key, (self.clock, self.fails(host.id, group)))

    def _end_of(self, host: MachineHost, task: ClaimedTask) -> TaskReport:
        group = next(group for group in self.groups.values() if task.task_id in group.tasks)
        began, fails = self._begin(host, group, task)
        self.done[host.id] += 1
        facts: dict[str, Any] = {"started_at": began + 1.0, "finished_at": self.clock + 1.5}
        if not fails and not group.is_broken(task.task_id):
            return succeeded(task, **facts)
        self.runs[task.task_id].append((self.clock, self.order.index(host.id)))
        if not group.is_broken(task.task_id):
            group.failed_at[host.id] = self.clock
        return failed(task, exit_code=42, **facts)

    # --- what must hold ---------------------------------------------------------------------------

    def _note_who_could_try(self, facts: Facts) -> None:
        for group in self.groups.values():
            if not any(self._could_try(host, group, facts) for host in self.order):
                group.unwatched_at = self.clock

    def _could_try(self, host: UUID, group: Running, facts: Facts) -> bool:
        if not self.is_good(host, group):
            return False
        known = self.machine.oracle.hosts[host]
        if known.draining:
            return False
        if known.silent_since is not None:
            silent = self.machine.now - known.silent_since
            return silent < AWAITED_SECONDS - LOOK_SECONDS and not self._is_busy(host, group, facts)
        return not self._is_busy(host, group, facts)

    def _is_busy(self, host: UUID, group: Running, facts: Facts) -> bool:
        """Whether it works for others for longer than it is awaited, or holds a long task."""
        leases = [lease for lease in facts.on_host(host) if lease.state != "offered"]
        if any(lease.group == group.known.id for lease in leases if lease.lives):
            return False
        failed_at = [group.failed_at.get(one, 0.0) for one in group.suspected]
        last = min(failed_at, default=max(group.failed_at.values(), default=0.0))
        awaited = self.clock - last < AWAITED_SECONDS - LOOK_SECONDS
        ends = any(not lease.lives and lease.claimed for lease in leases)
        return bool(leases) and (ends or not awaited)

    def _serves(self, host: UUID, group: Running, facts: Facts) -> bool:
        known = self.machine.oracle.hosts[host]
        return (
            known.silent_since is None
            and not known.draining
            and any(
                lease.group == group.known.id and lease.state == "active" and not lease.draining
                for lease in facts.on_host(host)
            )
        )

    async def _note_phases(self, group: Running, facts: Facts) -> None:
        rows = await self.w.rows(
            "SELECT m.uuid, f.phase FROM host_failures AS f JOIN managers AS m ON m.id = f.manager_id"
            " JOIN task_groups AS g ON g.id = f.group_id WHERE g.uuid = %s AND f.kind = 'tasks_failed'",
            group.known.id,
        )
        excused = {row["uuid"] for row in rows if row["phase"] == "excused"}
        at = group.unwatched_at
        if excused - group.excused and at is not None and self.clock - at <= DOUBTED_SECONDS:
            group.believed_until = self.clock + EXCUSED_SECONDS + LOOK_SECONDS
        group.excused = excused
        group.suspected = {row["uuid"] for row in rows if row["phase"] == "suspected"}
        self.quiet &= all(row["phase"] == "quarantined" for row in rows)
        blamed = {row["uuid"] for row in rows if row["phase"] in ("suspected", "excused")}
        serving = any(
            self.is_good(host, group) and self._serves(host, group, facts)
            for host in set(self.order) - blamed
        )
        if serving:
            group.believed_until = min(group.believed_until, self.clock + 2 * LOOK_SECONDS)

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
        excused = excused or self.clock <= group.believed_until
        if not new or excused or len(group.plan.broken) > 1 or not self._has_places(group):
            return
        group.lost |= new
        bad = sum(1 for after in self.plan.bad_after if after is not None)
        assert len(group.lost) <= STREAK * bad, (
            f"{group.known.name} loses {new} at {self.clock}, {len(group.lost)} by now; {self.plan};"
            f" runs {[self.runs[task] for task in sorted(new)]}"
        )

    def _has_places(self, group: Running) -> bool:
        """Whether no long task can keep the place that a good host needs."""
        most = group.known.max_managers
        return most is None or not group.plan.long_seconds

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
        runs = any(host.running for host in it.machine.hosts.values() if host.reachable)
        now = (
            unfinished,
            sum(it.done.values()),
            len(it.back_at),
            len(it.groups),
            runs and it.clock,
        )
        moved_at, before = (it.clock if now != before else moved_at), now
        if all(host.draining for host in it.machine.oracle.hosts.values()):
            moved_at = it.clock
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
        wrong = {ends[task] for task in ends if group.is_broken(task)}
        assert wrong <= ({"failed"} if group.known.goes_on else {"failed", "cancelled"})


@pytest.mark.timeout(600)
@pytest.mark.spec("C-33")
async def test_random_fleets_with_several_groups_keep_the_rules_of_blame(database: str) -> None:
    async with world(database) as w:
        plans = [
            SWAPPED,
            replace(SWAPPED, bad_for=SWAPPED.bad_for[::-1]),
            FULL,
            IDLE,
            FOUR,
            DRAINED,
            LONG,
            HICCUP,
        ]

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
            lost_after = timedelta(seconds=plan.lost_after)
            machine = Machine(replace(w, store=replace(w.store, host_lost_after=lost_after)))
            await machine.begin()
            it = Fleet(machine, plan, Random(plan.seed))
            await it.begin()
            await run(it)
            await check(it)
