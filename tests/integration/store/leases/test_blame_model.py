"""Random fleets against the rules of blame: good and bad hosts, broken tasks, retries, batches (C-33).

The model knows which host is broken and which task is; the store sees only reports. Good hosts stop in order
and come back, or cannot be reached with the first offer. Hosts are judged after reports, when the scheduler
is poked, and when the round is due, as in the product. Whatever the order:

* every task ends, and a broken task ends as failed;
* a good host is never quarantined, and a lone host neither;
* a task that is not broken fails only on a host that is not quarantined, at most four in a row there,
  or if no good host was in the fleet, or beside broken ones on a host that was excused because of them;
* the longest pause in which no task is claimed and none ends is 80 s while all hosts are there;
* nothing runs more often than its retries allow, apart from attempts on broken hosts and one opinion for
  each suspicion.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy, WorkerAllocationPlan
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask, TaskReport
from mitosis.store.leases.doubt import Failed, judge_groups, judge_report, next_judgement
from mitosis.store.leases.failures import record_failure
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.store import Store
from mitosis.store.tasks import report
from tests.support.campaigns import Host, World, failed, succeeded, world
from tests.support.examples import examples

STEPS = 400
LOOK_SECONDS = 10.0
LONGEST_PAUSE = 8
"""So many looks; a doubted failure is final after six."""


@dataclass(frozen=True)
class Plan:
    """One fleet: which hosts are broken from the start or later, how many tasks are broken."""

    bad_after: tuple[int | None, ...]
    """Of each host: the number of tasks after which it fails everything; None: it is good."""
    tasks: int
    broken: frozenset[int]
    retries: int
    batch: int
    seed: int
    signal: bool
    """Broken hosts kill their tasks; they exit with a status otherwise."""
    leaves: tuple[int | None, ...] = (None,) * 3
    """Of each host: it stops in order after so many steps of the fleet, if it is good; None: it stays."""
    away: int = 0
    """It comes back after so many seconds."""
    missed: bool = False
    """The first good host did not take its first offer; it takes the next one after the same time."""
    crossed: bool = False
    """A round judges between each report and its own judgement."""
    at_once: bool = False
    """A batch begins when it is claimed, and what runs goes on when its host breaks."""
    small: bool = False
    """One more host is in contact and has too few cores for the group."""


PLANS = st.builds(
    Plan,
    bad_after=st.lists(st.sampled_from([None, None, 0, 0, 3, 9]), min_size=1, max_size=3).map(
        tuple
    ),
    tasks=st.integers(1, 40),
    broken=st.frozensets(st.integers(0, 39), max_size=6) | st.just(frozenset(range(40))),
    retries=st.sampled_from([0, 0, 1, 2, 5]),
    batch=st.integers(1, 12),
    seed=st.integers(0, 2**32),
    signal=st.booleans(),
    leaves=st.tuples(*[st.sampled_from([None, None, 0, 1, 3, 8])] * 3),
    away=st.sampled_from([0, 10, 60, 150]),
    missed=st.booleans(),
    crossed=st.booleans(),
    at_once=st.booleans(),
    small=st.booleans(),
)


LEFT = Plan(
    (None, 0),
    tasks=40,
    broken=frozenset(),
    retries=0,
    batch=6,
    seed=1,
    signal=False,
    leaves=(3, None, None),
    away=20,
)
"""The only good host stops in order and comes back, when the broken one is quarantined."""
MISSED = replace(LEFT, leaves=(None,) * 3, missed=True)
"""The only good host has missed its first offer, and the broken one is quick."""
CROSSED = Plan(
    (None, 0),
    tasks=12,
    broken=frozenset(),
    retries=0,
    batch=12,
    seed=14,
    signal=False,
    missed=True,
    away=20,
    crossed=True,
)
"""The broken host has reported all tasks before the only good one is there, and a round is quicker."""
ALL_FAIL = Plan(
    (None, None, None),
    tasks=7,
    broken=frozenset(range(40)),
    retries=0,
    batch=7,
    seed=1,
    signal=False,
)
"""No report follows those with which the others are found to fail as well."""
SMALL = Plan(
    (0,), tasks=9, broken=frozenset(), retries=0, batch=9, seed=1, signal=False, small=True
)
"""A lone host that is broken, beside one that can never run the tasks."""
TWO_BAD = Plan(
    (0, 0, None), tasks=12, broken=frozenset(), retries=0, batch=12, seed=0, signal=False
)
"""One broken host has reported all tasks, and another broken one is the first to try some of them."""
HELD = Plan((0, 0, 0), tasks=10, broken=frozenset(), retries=5, batch=10, seed=10, signal=True)
"""Hosts that are all broken report one after the other what each has held for long."""


@dataclass
class Fleet:
    """The simulated hosts, and what the model counts."""

    w: World
    group: UUID
    plan: Plan
    hosts: list[Host]
    random: Random
    first_id: int
    done: list[int] = field(default_factory=list)
    held: defaultdict[int, list[ClaimedTask]] = field(default_factory=lambda: defaultdict(list))
    """Of each host: what it has claimed and not reported."""
    begun: dict[int, tuple[float, bool]] = field(default_factory=dict)
    """Of each host: when it claimed that, and whether it was broken then."""
    runs: dict[int, list[int]] = field(default_factory=dict)
    """Of each task: the hosts on which it failed or succeeded, in order."""
    back_in: dict[int, float] = field(default_factory=dict)
    """Of hosts that are away: seconds until they come back."""
    missed: set[int] = field(default_factory=set)
    """Hosts that are away since they did not take an offer."""
    excused: set[int] = field(default_factory=set)
    """Hosts that were excused at some time."""
    round_in: float | None = None
    """Seconds until the scheduler judges without a poke."""

    def is_bad(self, index: int) -> bool:
        after = self.plan.bad_after[index]
        return after is not None and self.done[index] >= after

    def is_broken(self, task_id: int) -> bool:
        return task_id - self.first_id in self.plan.broken

    async def step(self, index: int) -> bool:
        """Let one host claim a batch if it holds none, and report a part of it; whether it had anything.

        So hosts hold tasks while others are judged.
        """
        host, held = self.hosts[index], self.held[index]
        if not held:
            held += (await host.claim(self.plan.batch)).tasks
            self.begun[index] = (float(sum(self.done)), self.is_bad(index))
        reported = held[: self.random.randint(1, len(held))] if held else []
        if reported:
            await host.report(*(self._run(index, task) for task in reported))
            del held[: len(reported)]
        await self.judge_if_poked()
        return bool(reported)

    def _run(self, index: int, task: ClaimedTask) -> TaskReport:
        self.runs.setdefault(task.task_id, []).append(index)
        began, was_bad = self.begun[index]
        at = float(sum(self.done))
        if not self.plan.at_once:
            began, was_bad = at, self.is_bad(index)
        fails = was_bad or self.is_broken(task.task_id)
        self.done[index] += 1
        facts: dict[str, Any] = {"started_at": began, "finished_at": at + 0.5}
        if not fails:
            return succeeded(task, **facts)
        if self.plan.signal and not self.is_broken(task.task_id):
            return failed(task, "signal", signal=11, **facts)
        return failed(task, exit_code=42, **facts)

    async def pass_time(self, seconds: float) -> None:
        """Move the clocks of failures, delayed tasks and absent hosts; judge if the round is due."""
        for statement in (
            "UPDATE host_failures SET next_at = next_at - make_interval(secs => %s)",
            "UPDATE host_failures SET failed_at = failed_at - make_interval(secs => %s)",
            "UPDATE open_task SET not_before = not_before - make_interval(secs => %s) WHERE state = 4",
            "UPDATE manager_live SET last_contact_at = last_contact_at - make_interval(secs => %s)"
            " WHERE offline",
        ):
            await self.w.rows(statement, seconds)
        self.back_in = {index: left - seconds for index, left in self.back_in.items()}
        if self.round_in is not None:
            self.round_in -= seconds
        if self.round_in is not None and self.round_in <= 0:
            await self.judge()

    async def judge(self) -> None:
        """Do what a round does for hosts that fail."""
        await judge_groups(self.w.store)
        async with self.w.store.database.connection() as connection:
            self.round_in = await next_judgement(connection)

    async def judge_if_poked(self) -> None:
        if ("scheduler", None) in await self.w.pokes():
            await self.judge()

    async def come_and_go(self, step: int) -> None:
        """Let good hosts stop whose turn it is, and those come back that were away for long enough."""
        for index, host in enumerate(self.hosts):
            if self.plan.bad_after[index] is None and self.plan.leaves[index] == step:
                await say_goodbye(self.w.store, host.manager_id, host.epoch)
                self.held[index].clear()
                self.back_in[index] = self.plan.away
        for index in [index for index, left in self.back_in.items() if left <= 0]:
            del self.back_in[index]
            missed = index in self.missed
            if missed:
                self.missed.remove(index)
                await self.w.rows("DELETE FROM host_failures WHERE kind = 'unreachable'")
            await self.hosts[index].hello()
            await self.lease(index, prepare=missed)

    async def miss_an_offer(self, index: int) -> None:
        """Have the host be in contact and without a lease, as one that Temporal does not reach."""
        number = await self.w.value(
            "SELECT id FROM managers WHERE uuid = %s", self.hosts[index].manager_id
        )
        group = await self.w.value("SELECT id FROM task_groups WHERE uuid = %s", self.group)
        async with self.w.store.database.transaction() as connection:
            kind = HostFailureKind.UNREACHABLE
            await record_failure(connection, number, group, kind, "of a test")
        self.missed.add(index)
        self.back_in[index] = self.plan.away

    async def lease(self, index: int, *, prepare: bool) -> None:
        """Give the host a lease, as a round would."""
        host = self.hosts[index]
        await self.w.rows(
            "INSERT INTO leases (group_id, manager_id) SELECT g.id, m.id FROM task_groups AS g, managers AS m"
            " WHERE g.uuid = %s AND m.uuid = %s",
            self.group,
            host.manager_id,
        )
        await host.take(self.group, prepare=prepare)

    async def phases(self) -> dict[int, str]:
        rows = await self.w.rows(
            "SELECT m.uuid, f.phase FROM host_failures AS f JOIN managers AS m ON m.id = f.manager_id"
            " WHERE f.kind = 'tasks_failed'"
        )
        of = {host.manager_id: index for index, host in enumerate(self.hosts)}
        return {of[row["uuid"]]: row["phase"] for row in rows if row["uuid"] in of}

    async def unfinished(self) -> int:
        return int(
            await self.w.value(
                "SELECT unfinished FROM group_live JOIN task_groups ON id = group_id WHERE uuid = %s",
                self.group,
            )
        )


async def fleet(w: World, plan: Plan, number: int) -> Fleet:
    for table in ("open_task", "leases", "host_failures", "task", "task_result", "task_failures"):
        await w.rows(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
    await w.rows(
        "UPDATE manager_live SET offline = true, last_contact_at = now() - interval '1 day'"
    )
    await w.rows("UPDATE group_live SET total = 0, unfinished = 0, succeeded = 0, failed = 0")
    binding = CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)
    workers = WorkerAllocationPlan(worker_count=2, cpu_binding=binding)
    group = await w.group(f"model-{number}", worker_allocation_plan=workers)
    retry = RetryPolicy(max_attempts=plan.retries + 1)
    task = TaskSubmission(command=["x"], retry=retry)
    answer = await w.submit_tasks(group, [task] * plan.tasks)
    hosts = [await w.host() for _ in plan.bad_after]
    first = min(answer.task_ids)
    it = Fleet(w, group, plan, hosts, Random(plan.seed), first, [0] * len(hosts))
    for index, bad_after in enumerate(plan.bad_after):
        if plan.missed and bad_after is None and not it.missed:
            await it.miss_an_offer(index)
        else:
            await it.lease(index, prepare=True)
    if plan.small:
        await (await w.host(hello=False)).hello(cores=(0,))
    return it


async def run(it: Fleet) -> set[int]:
    """Run the fleet until every task has ended; return the hosts that were quarantined at some time."""
    quarantined: set[int] = set()
    unfinished, idle = 0, 0
    for step in range(STEPS):
        before, unfinished = unfinished, await it.unfinished()
        if not unfinished:
            return quarantined
        await it.come_and_go(step)
        order = [index for index in range(len(it.hosts)) if index not in it.back_in]
        it.random.shuffle(order)
        worked = [await it.step(index) for index in order]
        phases = await it.phases()
        quarantined |= {index for index, phase in phases.items() if phase == "quarantined"}
        it.excused |= {index for index, phase in phases.items() if phase == "excused"}
        waits = any(worked) or unfinished != before or it.back_in
        idle = 0 if waits else idle + 1
        assert idle <= LONGEST_PAUSE, (it.plan, phases)
        await it.pass_time(0.5 if any(worked) else LOOK_SECONDS)
    raise AssertionError(f"{await it.unfinished()} tasks have not ended: {it.plan}")


async def check(it: Fleet, quarantined: set[int]) -> None:
    plan = it.plan
    await it.w.check()
    results = await it.w.rows(
        "SELECT task_id, state FROM task_result JOIN task_groups ON id = group_id WHERE uuid = %s",
        it.group,
    )
    ended = {row["task_id"]: row["state"] for row in results}
    assert len(ended) == plan.tasks
    bad = {index for index in range(len(it.hosts)) if plan.bad_after[index] is not None}
    assert quarantined <= bad
    assert not quarantined or len(it.hosts) > 1
    good = set(range(len(it.hosts))) - bad
    wrong = {task for task, state in ended.items() if state == "failed" and not it.is_broken(task)}
    any_broken = any(it.is_broken(task) for task in ended)
    for task, state in ended.items():
        assert state == "failed" or not it.is_broken(task)
        if state == "failed" and good and not it.is_broken(task):
            shown = quarantined - (it.excused if any_broken else set())
            assert it.runs[task][-1] not in shown, (plan, task, it.runs)
    if good and not any_broken:
        assert len(wrong) <= 4 * len(bad), wrong
    for task, hosts in it.runs.items():
        charged = [index for index in hosts if index in good]
        assert len(charged) <= plan.retries + 1 + len(it.hosts), (task, hosts)


@pytest.mark.spec("C-33")
async def test_random_fleets_keep_the_rules_of_blame(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossed = False

    async def judge_late(store: Store, found: Failed) -> None:
        if crossed:
            await judge_groups(store)
        await judge_report(store, found)

    monkeypatch.setattr(report, "judge_report", judge_late)
    async with world(database) as w:
        plans = [HELD, LEFT, MISSED, CROSSED, ALL_FAIL, SMALL]
        plans += [replace(TWO_BAD, seed=seed) for seed in range(6)]

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
        for number, plan in enumerate(plans):
            crossed = plan.crossed
            it = await fleet(w, plan, number)
            await check(it, await run(it))
