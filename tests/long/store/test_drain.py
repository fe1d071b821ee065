"""Many at once: every drain edge is seen exactly once, and counters are what the rows say."""

import asyncio
import random
from contextlib import suppress
from uuid import UUID

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import InvalidTransition, Superseded, TaskGroupClosed
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from mitosis.store.pg import database as pg_database
from mitosis.store.pg.database import LIMITS
from tests.support.campaigns import Host, World, failed, succeeded, world
from tests.support.examples import examples

ROUNDS = examples(2)
HOSTS = 4
FIRST = 25


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are waited for longer than 3 s on a busy machine; PostgreSQL itself ends a deadlock after 1 s."""
    longer = LIMITS.replace("lock_timeout=3s", "lock_timeout=30s").replace("=15s", "=60s")
    monkeypatch.setattr(pg_database, "LIMITS", longer)


async def work(host: Host, chance: random.Random, stop: asyncio.Event) -> None:
    """Claim, lose answers, report in pieces and twice, fail now and then."""
    while not stop.is_set():
        if chance.random() < 0.1:
            await host.claim(5, lose=True)
        tasks = (await host.claim(chance.randint(1, 7))).tasks
        if not tasks:
            await asyncio.sleep(0.005)
            continue
        chance.shuffle(tasks)
        reports = [failed(t, exit_code=1) if chance.random() < 0.2 else succeeded(t) for t in tasks]
        half = len(reports) // 2
        await host.report(*reports[: half + 1])
        await host.report(*reports[half:])


async def submit(w: World, group: UUID, chance: random.Random, count: int) -> int:
    """Submits of changing size; gives how many tasks were accepted."""
    accepted = 0
    policy = RetryPolicy(max_attempts=2)
    for _ in range(count):
        tasks = [
            TaskSubmission(
                command=["x"],
                retry=policy,
                dedup_key=str(chance.randint(0, 9)) if chance.random() < 0.3 else None,
            )
            for _ in range(chance.randint(1, 6))
        ]
        try:
            accepted += (await w.submit_tasks(group, tasks)).created
        except TaskGroupClosed:
            await asyncio.sleep(0)
    return accepted


async def toggle(w: World, group: UUID, count: int) -> None:
    for _ in range(count):
        await w.close(group)
        await asyncio.sleep(0.005)
        try:
            await w.reopen(group)
        except InvalidTransition:
            return


async def count_edges(w: World, number: int) -> int:
    return int(await w.value("SELECT drain_seq FROM group_live WHERE group_id = %s", number))


@pytest.mark.spec("S000-109", "S000-142")
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_completers_submitters_and_a_closer(database: str, seed: int) -> None:
    chance = random.Random(seed)
    async with world(database, pool_size=16) as w:
        group = await w.group()
        await w.submit(group, FIRST)
        hosts = [await w.host() for _ in range(HOSTS)]
        await assign_round(w.store)
        for host in hosts:
            await host.take(group)
        await w.pokes()
        stop = asyncio.Event()
        workers = [asyncio.create_task(work(host, chance, stop)) for host in hosts]
        accepted, *_ = await asyncio.gather(submit(w, group, chance, 20), toggle(w, group, 8))
        await w.close(group)
        async with asyncio.timeout(100):
            while (await w.control.observe_task_group(group)).unfinished:
                await asyncio.gather(*(host.renew(held=[]) for host in hosts))
        stop.set()
        await asyncio.gather(*workers)
        view = await w.control.observe_task_group(group)
        assert view.total == FIRST + accepted
        await w.check()
        assert (await w.control.finalize(group)).state == "complete"
        twice = await w.rows("SELECT task_id FROM task_result GROUP BY task_id HAVING count(*) > 1")
        assert twice == []


async def test_every_edge_writes_one_poke(database: str) -> None:
    """Two hosts race for the last task again and again: one edge, one poke, each time."""
    async with world(database) as w:
        group = await w.group(reopen_on_submit=True)
        await w.submit(group, 8)
        hosts = [await w.host(), await w.host()]
        await assign_round(w.store)
        for host in hosts:
            await host.take(group)
        await hosts[0].finish((await hosts[0].claim()).tasks)
        for number in range(1, 16):
            await w.submit(group, 2)
            one = (await hosts[0].claim(1)).tasks
            two = (await hosts[1].claim(1)).tasks
            await w.close(group)
            await w.pokes()
            await asyncio.gather(hosts[0].finish(one), hosts[1].finish(two))
            pokes = await w.rows("SELECT subject FROM outbox WHERE kind = 'task_group'")
            assert [row["subject"] for row in pokes] == [group]
            assert (await w.control.observe_task_group(group)).drain_seq == number


async def test_reapers_claimers_and_reporters_do_not_deadlock(database: str) -> None:
    """Hosts die and come back all the time; nothing is stranded, nothing is counted twice."""
    chance = random.Random(7)
    async with world(database, pool_size=16) as w:
        group = await w.group()
        await w.submit(group, 80)
        hosts = [await w.host() for _ in range(HOSTS)]
        await assign_round(w.store)
        for host in hosts:
            await host.take(group)
        stop = asyncio.Event()

        async def die(host: Host) -> None:
            while not stop.is_set():
                await asyncio.sleep(chance.random() * 0.05)
                if chance.random() < 0.5:
                    request = ReleaseRequest(
                        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.MOVED
                    )
                    await release_lease(w.store, request)
                    await assign_round(w.store)
                    view = await observe_manager(w.store, host.manager_id)
                    if view.lease is not None and view.lease.state == "offered":
                        await host.take(group, prepare=False)
                else:
                    await host.hello()

        async def renewed(host: Host) -> None:
            with suppress(Superseded):  # its next process says hello at this moment
                await host.renew(held=[])

        workers = [asyncio.create_task(work(host, chance, stop)) for host in hosts]
        reapers = [asyncio.create_task(die(host)) for host in hosts]
        async with asyncio.timeout(100):
            while (await w.control.observe_task_group(group)).unfinished:
                assert [task.exception() for task in workers + reapers if task.done()] == []
                await asyncio.gather(*map(renewed, hosts))
        stop.set()
        await asyncio.gather(*workers, *reapers)
        await w.check()
        stranded = await w.value("SELECT count(*) FROM open_task")
        assert stranded == 0
