"""Random claims, reports, deaths and silences of worker services over the real store: one result for a task.

The machine knows what each process holds; answers and reports may be lost, and a process may die with or
without its journal. At the end every process works in order, and every task has its result.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from mitosis.contracts.errors import Superseded, WorkerNotFound, WorkerNotRegistered
from mitosis.contracts.service_tasks import NamedTaskAttempt
from mitosis.contracts.wire import ReportStatus
from mitosis.store.leases.silent_services import end_silent_registrations
from tests.support.aging import delete_expired, time_passes
from tests.support.campaigns import World, world
from tests.support.examples import CAMPAIGN, examples
from tests.support.worker_services import Service, healthy, service_group, submit_named, task

SERVICES = ("one", "two", "three")
PRIORITIES = {"one": 100, "two": 100, "three": 50}
NAME = st.sampled_from(SERVICES)
REFUSED = (WorkerNotRegistered, Superseded, WorkerNotFound)
"""The process learns that it has to register again; after months also that its service is deleted."""


class Services:
    """What the processes of three services do, and which of their reports were committed."""

    def __init__(self, w: World) -> None:
        self.w = w
        self.processes: dict[str, Service] = {}
        self.ended: dict[str, dict[UUID, NamedTaskAttempt]] = {name: {} for name in SERVICES}
        """Of each service: attempts that have ended and whose report has no answer."""
        self.committed: Counter[UUID] = Counter()
        self.groups: list[UUID] = []

    async def begin(self) -> None:
        self.groups = [
            await service_group(self.w, name, preference_seconds=0) for name in ("a", "b")
        ]
        for name in SERVICES:
            await self.start(name)

    async def start(self, name: str) -> None:
        """Start a process; what the one before had in its journal is named."""
        journal = [
            {"task_id": str(one.task_id), "attempt": one.attempt}
            for one in self.ended[name].values()
        ]
        one = task(priority=PRIORITIES[name])
        self.processes[name] = await healthy(self.w, name, one, slots=2, unreported=journal)
        self.processes[name].held = dict(self.ended[name])

    async def claim(self, name: str, *, lose: bool) -> None:
        process = self.processes[name]
        with suppress(*REFUSED):
            if lose:
                await process.ask(2)
            else:
                given = await process.claim(2)
                assert len(process.held) <= 2
                over = {(one.task_id, one.attempt) for one in self.ended[name].values()}
                assert not {(one.task_id, one.attempt) for one in given} & over

    async def end(self, name: str) -> None:
        """One attempt ends: it is in the journal."""
        process = self.processes[name]
        running = [one for key, one in process.held.items() if key not in self.ended[name]]
        if running:
            self.ended[name][running[0].task_id] = running[0]

    async def report(self, name: str, *, lose: bool) -> None:
        process = self.processes[name]
        ended = list(self.ended[name].values())
        try:
            answer = await process.report(*ended, lose=lose)
        except WorkerNotFound:
            assert not ended, "a service whose results are awaited was deleted"
            return
        for one, status in zip(ended, answer.statuses, strict=True):
            assert status is not ReportStatus.UNKNOWN
            self.committed[one.task_id] += status is ReportStatus.COMMITTED
        if not lose:
            self.ended[name].clear()

    async def silence(self, name: str) -> None:
        """The registration ends; the process goes on and learns it from its next claim."""
        await self.processes[name].ago(601)
        await end_silent_registrations(self.w.store)

    async def beat(self, name: str) -> None:
        process = self.processes[name]
        with suppress(*REFUSED):
            for stop in (await process.heartbeat()).stop:
                process.held.pop(stop.task_id)
                self.ended[name].pop(stop.task_id, None)

    async def goodbye(self, name: str) -> None:
        with suppress(WorkerNotFound):
            await self.processes[name].goodbye()

    async def finish(self) -> None:
        """One more answer is lost, then every service works in order until nothing is left."""
        await submit_named(self.w, self.groups[0], 3)
        for name in SERVICES:
            await self.claim(name, lose=True)
        await self.w.rows("UPDATE open_task SET lost_count = 0")  # poison is not the subject here
        for name in SERVICES:
            await self.report(name, lose=False)
            if not await self.is_registered(
                name
            ):  # what the others do not know is returned to them
                await self.start(name)
        for _ in range(100):
            if not await self.w.value("SELECT count(*) FROM open_task"):
                break
            for name in SERVICES:
                await self.claim(name, lose=False)
                await self.end(name)
                await self.report(name, lose=False)
        await self.check()
        assert await self.w.value("SELECT count(*) FROM open_task") == 0

    async def is_registered(self, name: str) -> bool:
        with suppress(*REFUSED):
            return bool(await self.processes[name].heartbeat())
        return False

    async def check(self) -> None:
        await self.w.check()
        assert max(self.committed.values(), default=0) <= 1
        twice = await self.w.rows(
            "SELECT o.group_id FROM open_task AS o LEFT JOIN leases AS l ON l.epoch = o.epoch"
            " WHERE o.state = 1 AND (l.state IS NULL OR l.state = 'ended')"
        )
        assert twice == [], "claimed under a lease that has ended"
        full = await self.w.rows(
            "SELECT l.worker_uuid FROM leases AS l JOIN open_task AS o ON o.epoch = l.epoch"
            " WHERE o.state = 1 GROUP BY 1 HAVING count(*) > 2"
        )
        assert full == [], "more than the slots"


class Machine(RuleBasedStateMachine):
    """The steps, each followed by the check."""

    def __init__(self, runner: asyncio.Runner, services: Services) -> None:
        super().__init__()
        self.runner, self.services = runner, services

    def does(self, step: Awaitable[Any]) -> None:
        async def both() -> None:
            await step
            await self.services.check()

        self.runner.run(both())

    @rule(group=st.integers(0, 1), count=st.integers(1, 4))
    def submit(self, group: int, count: int) -> None:
        self.does(submit_named(self.services.w, self.services.groups[group], count))

    @rule(name=NAME, lose=st.booleans())
    def claim(self, name: str, *, lose: bool) -> None:
        self.does(self.services.claim(name, lose=lose))

    @rule(name=NAME)
    def end(self, name: str) -> None:
        self.does(self.services.end(name))

    @rule(name=NAME, lose=st.booleans())
    def report(self, name: str, *, lose: bool) -> None:
        self.does(self.services.report(name, lose=lose))

    @rule(name=NAME)
    def die(self, name: str) -> None:
        self.does(self.services.start(name))

    @rule(name=NAME)
    def die_with_the_journal(self, name: str) -> None:
        self.services.ended[name].clear()
        self.does(self.services.start(name))

    @rule(name=NAME)
    def silence(self, name: str) -> None:
        self.does(self.services.silence(name))

    @rule(name=NAME)
    def beat(self, name: str) -> None:
        self.does(self.services.beat(name))

    @rule()
    def month(self) -> None:
        async def passes() -> None:
            await time_passes(self.services.w, 31)
            await delete_expired(self.services.w)

        self.does(passes())

    @rule(name=NAME)
    def goodbye(self, name: str) -> None:
        self.does(self.services.goodbye(name))


async def emptied(w: World) -> Services:
    """The three services over a store without anything else."""
    await w.rows(
        "TRUNCATE open_task, task, task_result, task_failures, service_claims, leases, group_live,"
        " task_groups, worker_services CASCADE"
    )
    services = Services(w)
    await services.begin()
    return services


@pytest.mark.spec("S000-70")
def test_each_task_has_one_result_whatever_dies(database: str) -> None:
    with asyncio.Runner() as runner:
        opened = world(database)
        w = runner.run(opened.__aenter__())

        class OnThisStore(Machine):
            def __init__(self) -> None:
                super().__init__(runner, runner.run(emptied(w)))

            def teardown(self) -> None:
                self.runner.run(self.services.finish())

        try:
            run_state_machine_as_test(
                OnThisStore,
                settings=settings(
                    max_examples=examples(6),
                    stateful_step_count=30,
                    deadline=None,
                    derandomize=not CAMPAIGN,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(opened.__aexit__(None, None, None))
