"""An idle lease goes to a group that has work (C-03, C-04); a busy one stays."""

import random
from dataclasses import replace
from uuid import UUID

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.store.groups.views import read_group
from mitosis.store.leases.scheduler import LOOK_SECONDS, assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from tests.support.campaigns import Host, World, failed, world

AT_ONCE = LeaseTerms(idle_threshold=0, longest_idle=0)
FIVE_MINUTES = LeaseTerms(idle_threshold=300)


async def let_go(host: Host) -> None:
    """What the manager's workflow does once the host has nothing left."""
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.MOVED
    )
    await release_lease(host.world.store, request)


@pytest.mark.spec("S002-160", "S002-161", "C-03", "C-28", "C-27", "S002-174")
async def test_an_idle_lease_ends_when_another_group_has_work_and_comes_back_warm(
    database: str,
) -> None:
    async with world(database) as w:
        store = replace(w.store, lease_terms=AT_ONCE)
        first = await w.group("first")
        await w.submit(first)
        host = await w.leased_host(first)
        await host.finish((await host.claim()).tasks)
        second, third = await w.group("second"), await w.group("third", priority=-1)
        await w.submit(third)
        await w.submit(second)  # it goes first

        await assign_round(store)
        assert ("manager", host.manager_id) in await w.pokes()
        assert (await host.claim()).standing == "ending"
        await let_go(host)
        assert (await assign_round(store)).offered == 1
        await host.take(second)
        states = {
            e.task_group_name: e.state
            for e in (await observe_manager(w.store, host.manager_id)).environments
        }
        assert states == {"first": "ready", "second": "ready"}

        await host.finish((await host.claim()).tasks)
        await w.submit(first)
        await assign_round(store)
        await let_go(host)
        await assign_round(store)
        await host.take(first, prepare=False)
        assert len((await host.claim()).tasks) == 1  # its environment has stayed ready


@pytest.mark.spec("S002-172", "C-04", "S002-159", "C-27", "S002-174")
@pytest.mark.parametrize("work", ["claimable", "in flight", "prefetched"])
async def test_a_lease_with_work_is_safe_until_its_affinity_is_over(
    database: str, work: str
) -> None:
    async with world(database) as w:
        store = replace(w.store, lease_terms=AT_ONCE)
        first = await w.group("first")
        await w.submit(first, 2)
        host = await w.leased_host(first)
        tasks = (await host.claim(1 if work == "claimable" else 2)).tasks
        await host.finish(tasks[:1])
        if work == "in flight":
            await host.renew(started=tasks[1:])
        await w.submit(await w.group("second", priority=9))
        for closed in (False, True):
            answer = await assign_round(store)
            assert (answer.offered, answer.next_round_in_seconds) == (0, LOOK_SECONDS[0])
            assert (await host.renew()).standing == "active"
            if not closed:
                await w.close(first)


@pytest.mark.parametrize("rest", ["on another host", "not due"])
async def test_a_host_that_is_idle_while_its_group_is_not_drained_is_found(
    database: str, rest: str
) -> None:
    """Nobody tells the scheduler: the round comes back by itself while a group waits for a busy host."""
    async with world(database) as w:
        store = replace(w.store, lease_terms=AT_ONCE)
        first = await w.group("first")
        retry = RetryPolicy(max_attempts=2, delay_seconds=600)
        await w.submit_tasks(first, [TaskSubmission(command=["x"], retry=retry)] * 2)
        host = await w.leased_host(first)
        one, other = (await host.claim()).tasks
        second = await w.group("second")
        await w.submit(second)
        answer = await assign_round(store)
        assert answer.next_round_in_seconds == LOOK_SECONDS[0]
        await host.finish([one])
        if rest == "not due":
            await host.report(failed(other, exit_code=1))
        else:
            await w.rows("UPDATE open_task SET epoch = epoch + 1000 WHERE state = 1")
        await assign_round(store)
        assert (await host.claim()).standing == "ending"


@pytest.mark.spec("S002-162", "S002-178")
async def test_an_idle_lease_stays_where_no_other_group_could_use_the_host(database: str) -> None:
    """However long it is idle, an open group goes on under it without another setup."""
    async with world(database) as w:
        store = replace(w.store, lease_terms=FIVE_MINUTES)
        first = await w.group("first")
        await w.submit(first)
        host = await w.leased_host(first)
        await host.finish((await host.claim()).tasks)
        await w.submit(await w.group("elsewhere", tags={"gpu"}, priority=9))
        await w.rows(
            "UPDATE leases SET taken_at = taken_at - interval '50 minutes', busy_at = NULL"
        )
        answer = await assign_round(store)
        assert (answer.offered, (await host.renew()).standing) == (0, "active")
        await w.submit(first)
        assert len((await host.claim()).tasks) == 1
        assert await w.value("SELECT count(*) FROM leases") == 1


@pytest.mark.spec("S002-160", "C-04", "S002-159", "S002-174")
async def test_an_idle_lease_is_safe_until_the_threshold_and_the_round_comes_back_then(
    database: str,
) -> None:
    async with world(database) as w:
        store = replace(w.store, lease_terms=FIVE_MINUTES)
        first = await w.group("first")
        await w.submit(first)
        host = await w.leased_host(first)
        await host.finish((await host.claim()).tasks)
        assert (await assign_round(store)).next_round_in_seconds is None  # no other group waits

        await w.submit(await w.group("second"))
        left = (await assign_round(store)).next_round_in_seconds
        assert left is not None
        assert 290 < left <= 300
        await w.rows("UPDATE leases SET taken_at = taken_at - interval '4 minutes', busy_at = NULL")
        left = (await assign_round(store)).next_round_in_seconds
        assert left is not None
        assert 50 < left <= 60
        assert (await host.renew()).standing == "active"


@pytest.mark.spec("S002-172")
async def test_work_seen_at_a_renewal_starts_the_idle_clock_anew(database: str) -> None:
    async with world(database) as w:
        store = replace(w.store, lease_terms=FIVE_MINUTES)
        first = await w.group("first")
        await w.submit(first)
        host = await w.leased_host(first)
        await w.rows("UPDATE leases SET taken_at = taken_at - interval '10 minutes'")
        tasks = (await host.claim()).tasks
        await host.renew(started=tasks)
        await host.finish(tasks)
        await w.submit(await w.group("second"))
        left = (await assign_round(store)).next_round_in_seconds
        assert left is not None
        assert 290 < left <= 300


@pytest.mark.spec("S002-167", "S002-174")
async def test_a_group_that_is_reopened_goes_on_under_the_lease_it_has(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.leased_host(group)
        before = (await host.claim()).tasks
        await w.close(group)
        await w.reopen(group)
        await w.submit(group)
        (task,) = (await host.claim()).tasks  # same epoch, and no setup in between
        await host.finish([*before, task])
        assert (await read_group(w.store, group)).tasks_succeeded == 2
        assert await w.value("SELECT count(*) FROM leases") == 1


@pytest.mark.spec("S002-168")
async def test_a_host_that_went_elsewhere_comes_back_to_a_group_that_is_reopened(
    database: str,
) -> None:
    async with world(database) as w:
        store = replace(w.store, lease_terms=AT_ONCE)
        first = await w.group("first")
        later = RetryPolicy(max_attempts=2, delay_seconds=1000)  # keeps the group from completing
        await w.submit_tasks(first, [TaskSubmission(command=["x"], retry=later)])
        host = await w.leased_host(first)
        (task,) = (await host.claim()).tasks
        await host.report(failed(task, exit_code=1))
        await w.close(first)
        second = await w.group("second")
        await w.submit(second)
        for group, prepare in ((second, True), (first, False)):
            await assign_round(store)
            assert (await host.claim()).standing == "ending"
            await let_go(host)
            await assign_round(store)
            await host.take(group, prepare=prepare)
            (task,) = (await host.claim()).tasks
            await host.finish([task])
            if group == second:
                await w.reopen(first)
                await w.submit(first)


@pytest.mark.spec("C-02")
@pytest.mark.parametrize("work", ["ready", "delayed", "in flight"])
@pytest.mark.parametrize("closed", [False, True])
async def test_a_lease_is_renewed_while_its_group_has_anything_unfinished(
    database: str, work: str, *, closed: bool
) -> None:
    async with world(database) as w:
        group = await w.group()
        retry = RetryPolicy(max_attempts=2, delay_seconds=1000)
        await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=retry)])
        host = await w.leased_host(group)
        if work != "ready":
            (task,) = (await host.claim()).tasks
            if work == "delayed":
                await host.report(failed(task, exit_code=1))
        if closed:
            await w.close(group)
        await w.rows("UPDATE leases SET alive_until = now() + interval '1 second'")
        assert (await host.renew()).standing == "active"
        left = "SELECT extract(epoch FROM alive_until - now()) FROM leases"
        assert await w.value(left) > 80
        await w.rows("UPDATE leases SET affinity_until = now()")
        await assign_round(replace(w.store, lease_terms=AT_ONCE))
        assert (await host.renew()).standing == "active"
        lease = (await observe_manager(w.store, host.manager_id)).lease
        assert lease is not None
        assert lease.turn is not None
        assert (lease.turn.what, lease.turn.in_seconds > 3500) == ("affinity", True), "renewed"


async def idle_hosts(w: World, groups: int) -> list[Host]:
    """Hosts under leases of groups that go on and have nothing to do."""
    hosts = []
    for number in range(groups):
        group = await w.group(f"earlier-{number}", priority=number)
        await w.submit(group)
        hosts.append(await w.leased_host(group))
        await hosts[-1].finish((await hosts[-1].claim()).tasks)
    return hosts


async def freed_for(w: World, group: UUID) -> int:
    freed = "SELECT count(*) FROM leases AS l JOIN task_groups AS g ON g.id = l.freed_for WHERE g.uuid = %s"
    return int(await w.value(freed, group))


@pytest.mark.spec("C-03", "S002-174")
@pytest.mark.parametrize("seed", range(4))
async def test_what_waits_behind_a_long_task_gets_the_hosts_that_other_groups_leave_idle(
    database: str, seed: int
) -> None:
    """Its own host has just claimed, so it counts as capacity; the agent returns what it does not begin."""
    chance = random.Random(seed)
    async with world(database) as w:
        store = replace(w.store, lease_terms=AT_ONCE)
        idle = chance.randint(1, 4)
        await idle_hosts(w, idle)
        group = await w.group("mixed", worker_allocation_plan={"worker_count": 1})
        count = chance.randint(1, 20)
        await w.submit(group, count)
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        assert len(tasks) == count
        long = chance.randrange(count)
        await host.finish(tasks[:long])
        await host.renew(returned=tasks[long + 1 :])
        waiting = count - long - 1
        for _ in range(2):  # the second finds them on their way
            assert (await assign_round(store)).offered == 0
            more = -(-waiting // 2) - 1  # its own host has room for two
            assert await freed_for(w, group) == max(0, min(more, idle))


async def test_a_group_without_a_host_gets_an_idle_one_before_one_of_equal_priority_that_has_some(
    database: str,
) -> None:
    async with world(database) as w:
        store = replace(w.store, lease_terms=AT_ONCE)
        await idle_hosts(w, 1)
        rich = await w.group("rich", worker_allocation_plan={"worker_count": 1})
        await w.submit(rich, 10)
        await (await w.leased_host(rich)).claim(1)
        poor = await w.group("poor")
        await w.submit(poor)
        await assign_round(store)
        assert (await freed_for(w, poor), await freed_for(w, rich)) == (1, 0)


async def test_a_group_does_not_take_a_host_from_itself(database: str) -> None:
    """Tasks that have just become due are no work of a lease yet, and could use more hosts."""
    async with world(database) as w:
        store = replace(w.store, lease_terms=AT_ONCE)
        group = await w.group(worker_allocation_plan={"worker_count": 1})
        retry = RetryPolicy(max_attempts=2, delay_seconds=600)
        await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=retry)] * 9)
        host = await w.leased_host(group)
        await host.report(*(failed(task, exit_code=1) for task in (await host.claim()).tasks))
        await w.rows("UPDATE open_task SET not_before = now()")
        await assign_round(store)
        assert (await host.renew()).standing == "active"
