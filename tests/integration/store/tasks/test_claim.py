"""Claims: order, lost answers, the fence, waiting (protocol P3, P7)."""

import asyncio
import itertools
import time
from uuid import UUID

import pytest

from mitosis.contracts.lifecycle import ListedState, TaskState
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimAnswer, LeaseStanding
from mitosis.store.groups.explain import explain_task
from mitosis.store.groups.views import read_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.draining import drain_manager
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.views import get_manager
from mitosis.store.tasks.views import list_tasks
from tests.support.campaigns import Host, World, failed, stranded, world
from tests.support.waiting import wait_until_async


def ids(answer: ClaimAnswer) -> list[int]:
    return [task.task_id for task in answer.tasks]


@pytest.mark.spec("S000-05")
async def test_higher_priority_first_then_age(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        tasks = [TaskSubmission(command=["true"], priority=p) for p in (0, 5, -1, 5)]
        a, b, c, d = (await w.submit_tasks(group, tasks)).task_ids
        host = await w.leased_host(group)
        assert ids(await host.claim(3)) == [b, d, a]
        (e,) = (
            await w.submit_tasks(group, [TaskSubmission(command=["true"], priority=9)])
        ).task_ids
        assert ids(await host.claim(3)) == [e, c]


@pytest.mark.spec("S000-43")
async def test_a_lost_answer_is_given_again_and_nothing_twice(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        submitted = (await w.submit(group, 6)).task_ids
        host = await w.leased_host(group)
        assert ids(await host.claim(2, lose=True)) == submitted[:2]
        assert ids(await host.claim(2, lose=True)) == submitted[:2], (
            "the same number, the same rows"
        )
        answer = await host.claim(4)
        assert ids(answer) == submitted[:4]
        assert {task.attempt for task in answer.tasks} == {1}
        assert ids(await host.claim(4)) == submitted[4:]


async def test_a_claim_given_up_long_ago_takes_nothing(database: str) -> None:
    """Its number was acknowledged already: nobody would ever see what it takes."""
    async with world(database) as w:
        group = await w.group()
        host = await _ready_host(w, group)
        old = host.claim_seq + 1
        await host.claim()
        await host.claim()
        await w.submit(group, 1)
        host.claim_seq, now = old - 1, host.claim_seq
        assert ids(await host.claim()) == []
        host.claim_seq = now
        assert len(ids(await host.claim())) == 1


async def _ready_host(w: World, group: UUID) -> Host:
    """A host with a lease on a group that has nothing to do."""
    await w.submit(group, 1)
    host = await w.leased_host(group)
    await host.finish((await host.claim()).tasks)
    return host


async def test_claims_need_a_live_lease_of_their_own_and_a_ready_environment(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 3)
        host = await w.host()
        await assign_round(w.store)
        host.epoch = await host.offered_epoch()
        assert (await host.claim()).standing is LeaseStanding.GONE, "offered is not taken"
        await host.take(group, prepare=False)
        answer = await host.claim()
        assert (answer.standing, answer.tasks) == (LeaseStanding.ACTIVE, []), "no environment"
        await host.environment(group, "preparing", epoch=host.epoch)
        assert (await host.claim()).tasks == [], "not ready yet"
        await host.prepare(group)
        stranger = await w.host()
        stranger.epoch = host.epoch
        assert (await stranger.claim()).standing is LeaseStanding.GONE
        assert len(ids(await host.claim(1))) == 1
        await w.rows("UPDATE leases SET alive_until = now() - interval '1 second'")
        assert ids(await host.claim(1)) == [], "silent for too long"
        await host.renew()
        assert len(ids(await host.claim(1))) == 1, "heard of again before anybody reaped it"


async def test_two_leases_never_get_the_same_task(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        submitted = await w.submit(group, 400)
        hosts = [await w.host() for _ in range(4)]
        await assign_round(w.store)
        for host in hosts:
            await host.take(group)

        async def drain(host: Host) -> list[int]:
            got: list[int] = []
            while new := ids(await host.claim(7)):
                got += new
                assert len(got) <= 400, "a task was claimed twice"
            return got

        shares = await asyncio.gather(*map(drain, hosts))
        assert sorted(itertools.chain(*shares)) == submitted.task_ids


async def test_a_delayed_retry_is_claimable_when_it_is_due(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        policy = RetryPolicy(max_attempts=2, delay_seconds=0.3)
        await w.submit_tasks(group, [TaskSubmission(command=["false"], retry=policy)])
        host = await w.leased_host(group)
        (task,) = (await host.claim()).tasks
        began = time.monotonic()
        await host.report(failed(task, exit_code=1))
        assert ids(await host.claim()) == []
        (again,) = (await host.claim(wait=5)).tasks
        assert 0.25 < time.monotonic() - began < 15
        assert (again.task_id, again.attempt) == (task.task_id, 2)


@pytest.mark.spec("S000-107", "S002-16")
async def test_an_empty_claim_waits_and_is_woken_by_a_submit(database: str) -> None:
    async with world(database, pool_size=2) as w:
        group = await w.group()
        host = await _ready_host(w, group)
        waiting = asyncio.create_task(host.claim(wait=20))
        await wait_until_async(lambda: w.value("SELECT hungry FROM group_live"))
        assert await w.value("SELECT 1") == 1, "it waits without a connection"
        began = time.monotonic()
        submitted = await w.submit(group, 1)
        answer = await waiting
        assert ids(answer) == submitted.task_ids
        assert time.monotonic() - began < 15
        assert not await w.value("SELECT hungry FROM group_live")


async def test_a_waiting_claim_is_woken_by_a_requeue_a_retry_and_an_ending(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        policy = RetryPolicy(max_attempts=2)
        await w.submit_tasks(
            group, [TaskSubmission(command=["x"], retry=policy) for _ in range(40)]
        )
        one, two = await w.host(), await w.host()
        await assign_round(w.store)
        await one.take(group)
        await two.take(group)
        first = (await one.claim(100)).tasks

        async def waiting() -> asyncio.Task[ClaimAnswer]:
            task = asyncio.create_task(two.claim(wait=20))
            await wait_until_async(lambda: w.value("SELECT hungry FROM group_live"))
            return task

        claim = await waiting()
        await one.renew(returned=first[:1])
        assert ids(await claim) == [first[0].task_id]
        claim = await waiting()
        await one.report(failed(first[1], exit_code=1))
        assert ids(await claim) == [first[1].task_id]
        claim = await waiting()
        await say_goodbye(w.store, one.manager_id, one.epoch)
        assert ids(await claim) == [task.task_id for task in first[2:]]
        claim = await waiting()
        await w.cancel(group)
        assert (await claim).standing is LeaseStanding.ENDING


@pytest.mark.spec("S000-48")
async def test_a_claim_without_work_ends_after_its_time(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        host = await _ready_host(w, group)
        began = time.monotonic()
        answer = await host.claim(wait=0.2)
        assert (answer.standing, answer.tasks) == (LeaseStanding.ACTIVE, [])
        assert 0.2 <= time.monotonic() - began < 15
        assert await stranded(w) == 0


async def test_what_hosts_hold_is_listed_and_agrees_with_their_drains_and_explain(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 9)
        first, second = await w.leased_host(group), await w.leased_host(group)
        running, *begins = (await first.claim(3)).tasks
        await first.renew(started=[running])
        (other,) = (await second.claim(1)).tasks
        held = (await list_tasks(w.store, group, state=ListedState.HELD)).items
        assert [(task.task_id, task.state) for task in held] == [
            (running.task_id, TaskState.RUNNING),
            *((task.task_id, TaskState.READY) for task in (*begins, other)),
        ]
        assert [task.manager_name for task in held] == ["host"] * 4
        shown = {
            state: [task.task_id for task in (await list_tasks(w.store, group, state=state)).items]
            for state in (TaskState.RUNNING, TaskState.READY)
        }
        info = await read_group(w.store, group)
        assert shown[TaskState.RUNNING] == [running.task_id]
        assert len(shown[TaskState.RUNNING]) == info.tasks_running
        assert len(shown[TaskState.READY]) == info.tasks_unfinished - info.tasks_running == 8
        explained = [(await explain_task(w.store, task.task_uuid)).code for task in held]
        assert explained == ["working", "claimed", "claimed", "claimed"]
        await drain_manager(w.store, first.manager_id)
        drain = (await get_manager(w.store, first.manager_id)).drain
        assert drain is not None
        assert drain.waits_for == ["3 tasks of campaign to end"]
