"""The look of the control worker: each way in which work can come to wait beside a usable host (protocol P7).

No poke and no notification takes part: the outbox is emptied before every look.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from psycopg import sql

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimTasks
from mitosis.store.groups.views import read_group
from mitosis.store.leases.failures import record_failure
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from mitosis.store.store import Store
from mitosis.store.tasks.claim import claim_tasks
from tests.support.campaigns import Host, World, failed, world
from tests.support.waiting import wait_until_async

Cause = Callable[[World], AsyncIterator[None]]
CAUSES: dict[str, Cause] = {}
"""Each arranges a world in which nothing waits, yields, and makes work wait."""


def cause(function: Cause) -> Cause:
    CAUSES[function.__name__] = function
    return function


async def age(w: World, host: Host, column: str, seconds: float) -> None:
    """Move a time of the host's lease or contact into the past."""
    table = "manager_live" if column == "last_contact_at" else "leases"
    past = sql.SQL(
        "UPDATE {} SET {} = now() - make_interval(secs => %s)"
        " WHERE manager_id = (SELECT id FROM managers WHERE uuid = %s)"
    ).format(sql.Identifier(table), sql.Identifier(column))
    await w.rows(past, seconds, host.manager_id)


async def with_long_task(w: World, **spec: Any) -> Host:
    """A host that holds a lease and runs a long task in its only worker."""
    group = await w.group("busy", worker_allocation_plan={"worker_count": 1}, **spec)
    await w.submit(group)
    host = await w.leased_host(group)
    await host.renew(started=(await host.claim(1)).tasks)
    await age(w, host, "last_claim_at", 2)
    return host


async def with_claimed_task(w: World) -> Host:
    """A host with a claimed task of a group that may have no other host, and a free host."""
    group = await w.group(max_managers=1)
    await w.submit(group)
    host = await w.leased_host(group)
    await host.claim()
    await w.host()
    return host


async def idle_beside_another_group(w: World) -> tuple[UUID, Host]:
    """A group whose tasks are done, and its host, which another group needs."""
    first = await w.group("first")
    await w.submit(first)
    host = await w.leased_host(first)
    await host.finish((await host.claim()).tasks)
    await w.submit(await w.group("second"))
    return first, host


async def idle_for_an_hour(w: World) -> None:
    """Nothing has changed on any host for so long."""
    await w.rows("UPDATE environments SET changed_at = now() - interval '1 hour'")
    await w.rows("UPDATE manager_live SET contact_since = now() - interval '1 hour'")


async def group_of(w: World, host: Host) -> UUID:
    lease = (await observe_manager(w.store, host.manager_id)).lease
    assert lease is not None
    return lease.task_group_id


@cause
async def submit(w: World) -> AsyncIterator[None]:
    group = await w.group()
    await w.host()
    yield
    await w.submit(group)


@cause
async def a_host_registers(w: World) -> AsyncIterator[None]:
    await w.submit(await w.group())
    yield
    await w.host()


@cause
async def a_silent_host_is_back(w: World) -> AsyncIterator[None]:
    host = await w.host()
    await age(w, host, "last_contact_at", 15)
    await w.submit(await w.group())
    yield
    await host.renew()


@cause
async def a_lost_host_says_hello(w: World) -> AsyncIterator[None]:
    host = await w.host()
    await say_goodbye(w.store, host.manager_id, None)
    await w.submit(await w.group())
    yield
    await host.hello()


@cause
async def the_agent_stops_and_another_host_is_free(w: World) -> AsyncIterator[None]:
    host = await with_claimed_task(w)
    yield
    await say_goodbye(w.store, host.manager_id, host.epoch)


@cause
async def a_host_is_lost(w: World) -> AsyncIterator[None]:
    host = await with_claimed_task(w)
    yield
    await age(w, host, "alive_until", 1)
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
    )
    await release_lease(w.store, request)


@cause
async def a_host_with_a_lease_becomes_silent(w: World) -> AsyncIterator[None]:
    group = await w.group()
    await w.submit(group)
    host = await w.leased_host(group)
    await w.host()
    yield
    await age(w, host, "last_contact_at", 11)


@cause
async def a_retry_comes_due(w: World) -> AsyncIterator[None]:
    group = await w.group()
    policy = RetryPolicy(max_attempts=2, delay_seconds=3600)
    await w.submit_tasks(group, [TaskSubmission(command=["false"], retry=policy)])
    host = await w.leased_host(group)
    (task,) = (await host.claim()).tasks
    await host.report(failed(task))
    await say_goodbye(w.store, host.manager_id, host.epoch)
    await w.host()
    yield
    await w.rows("UPDATE open_task SET not_before = now() WHERE state = 4")


@cause
async def tasks_are_returned_by_a_busy_host(w: World) -> AsyncIterator[None]:
    host = await with_long_task(w)
    await w.submit(await group_of(w, host), 2)
    waiting = (await host.claim()).tasks
    await age(w, host, "last_claim_at", 2)
    await w.host()
    yield
    await host.renew(returned=waiting)


@cause
async def the_only_worker_runs_a_long_task(w: World) -> AsyncIterator[None]:
    group = await w.group(worker_allocation_plan={"worker_count": 1})
    await w.submit(group, 2)
    host = await w.leased_host(group)
    tasks = (await host.claim(1)).tasks
    await age(w, host, "last_claim_at", 2)
    await w.host()
    yield
    await host.renew(started=tasks)


@cause
async def a_host_is_undrained(w: World) -> AsyncIterator[None]:
    await w.host()
    await w.rows("UPDATE managers SET draining = true")
    await w.submit(await w.group())
    yield
    await w.rows("UPDATE managers SET draining = false")


@cause
async def the_tags_of_a_host_change(w: World) -> AsyncIterator[None]:
    await w.host(tags=["cpu"])
    await w.submit(await w.group(tags={"gpu"}))
    yield
    await w.rows("UPDATE managers SET tags = ARRAY['gpu']")


@cause
async def a_host_gets_a_role(w: World) -> AsyncIterator[None]:
    await w.host()
    await w.rows("UPDATE user_group_managers SET role = 'read'")
    await w.submit(await w.group())
    yield
    await w.rows("UPDATE user_group_managers SET role = 'write'")


@cause
async def max_managers_is_raised(w: World) -> AsyncIterator[None]:
    host = await with_long_task(w, max_managers=1)
    await w.host()
    await w.submit(await group_of(w, host))
    yield
    await w.rows("UPDATE task_groups SET max_managers = 2")


@cause
async def a_lease_ends_while_a_long_task_runs_under_it(w: World) -> AsyncIterator[None]:
    group = await w.group()
    await w.submit(group)
    host = await w.leased_host(group)
    await host.renew(started=(await host.claim(1)).tasks)
    await w.submit(group)
    await w.host()
    yield
    await w.rows("UPDATE leases SET state = 'ending', end_reason = 'moved'")


@cause
async def another_group_has_let_go_of_its_host(w: World) -> AsyncIterator[None]:
    first, host = await idle_beside_another_group(w)
    yield
    await w.close(first)
    await w.control.finalize(first)
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.GROUP_ENDED
    )
    await release_lease(w.store, request)
    await host.clean(first)


@cause
async def an_idle_lease_is_past_its_threshold(w: World) -> AsyncIterator[None]:
    _, host = await idle_beside_another_group(w)
    yield
    for column in ("busy_at", "taken_at"):
        await age(w, host, column, 301)


@cause
async def a_group_that_has_a_host_could_use_an_idle_one(w: World) -> AsyncIterator[None]:
    first = await w.group("first")
    await w.submit(first)
    host = await w.leased_host(first)
    await host.finish((await host.claim()).tasks)
    second = await w.group("second", worker_allocation_plan={"worker_count": 1})
    await w.submit(second, 10)
    await (await w.leased_host(second)).claim(1)
    yield
    for column in ("busy_at", "taken_at"):
        await age(w, host, column, 301)


@cause
async def the_pause_after_a_failure_is_over(w: World) -> AsyncIterator[None]:
    await w.host()
    await w.submit(await w.group())
    async with w.database.transaction() as connection:
        await record_failure(connection, 1, 1, HostFailureKind.NO_PROGRESS, "it was stuck")
    yield
    await w.rows("UPDATE host_failures SET next_at = now()")


@cause
async def an_offer_is_not_taken(w: World) -> AsyncIterator[None]:
    await w.submit(await w.group())
    host = await w.host()
    await assign_round(w.store)
    await w.host()
    yield
    await age(w, host, "offered_at", 31)


@cause
async def a_lease_makes_no_progress(w: World) -> AsyncIterator[None]:
    group = await w.group()
    await w.submit(group)
    host = await w.leased_host(group)
    await idle_for_an_hour(w)
    yield
    await age(w, host, "taken_at", 31)


async def with_failures(w: World, count: int) -> tuple[Host, Host]:
    """Two hosts of a group; so many tasks have failed on the first one, and it holds one more."""
    group = await w.group()
    await w.submit(group, count + 1)
    bad, other = await w.host(), await w.host()
    await assign_round(w.store)
    await bad.take(group)
    await other.take(group)
    tasks = (await bad.claim()).tasks
    await bad.report(*(failed(task, exit_code=42) for task in tasks[:count]))
    return bad, other


async def judged_now(w: World) -> None:
    await w.rows("UPDATE host_failures SET next_at = now()")


@cause
async def a_doubted_failure_becomes_final(w: World) -> AsyncIterator[None]:
    await with_failures(w, 2)
    yield
    await judged_now(w)


@cause
async def the_time_of_a_suspicion_is_over(w: World) -> AsyncIterator[None]:
    _, other = await with_failures(w, 6)
    await w.rows("UPDATE leases SET draining = true WHERE epoch = %s", other.epoch)
    yield
    await judged_now(w)


@cause
async def a_host_is_expected_back_no_longer(w: World) -> AsyncIterator[None]:
    _, other = await with_failures(w, 6)
    await say_goodbye(w.store, other.manager_id, other.epoch)
    yield
    await age(w, other, "last_contact_at", 181)


@pytest.mark.parametrize("name", CAUSES)
async def test_a_look_finds_work_that_waits_beside_a_usable_host_whatever_made_it_wait(
    database: str, name: str
) -> None:
    async with world(database) as w:
        steps = aiter(CAUSES[name](w))
        await anext(steps)
        await w.pokes()
        assert not (await look(w.store)).what
        await anext(steps, None)
        await w.pokes()
        assert (await look(w.store)).what
        assert (await look(w.store)).what  # it only reads
        await assign_round(w.store)
        assert not (await look(w.store)).what


async def test_what_no_host_can_serve_is_no_reason_for_a_signal(database: str) -> None:
    async with world(database) as w:
        await w.submit(await w.group(tags={"gpu"}), 1000)
        for _ in range(3):
            await w.host()
        assert await look(w.store) == await look(w.store)
        assert not (await look(w.store)).what


async def test_an_offer_that_a_host_has_not_taken_is_named(database: str) -> None:
    async with world(database) as w:
        await w.submit(await w.group())
        host = await w.host()
        await assign_round(w.store)
        assert (await look(w.store)).offered == {}
        await age(w, host, "offered_at", 2)
        assert (await look(w.store)).offered == {1: host.manager_id}


async def test_a_stuck_lease_is_ended_and_remembered_and_its_tasks_go_back(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        await host.claim(1)  # held there, and never begun
        await host.renew(trouble="its disk is full")
        for column in ("taken_at", "last_claim_at"):
            await age(w, host, column, 31)
        await w.rows("UPDATE environments SET changed_at = now() - interval '1 hour'")
        await assign_round(w.store)
        assert (await observe_manager(w.store, host.manager_id)).lease is not None, "contact is new"
        await w.rows("UPDATE manager_live SET contact_since = now() - interval '31 s'")
        await assign_round(w.store)
        assert (await observe_manager(w.store, host.manager_id)).lease is None
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 0") == 2
        assert await w.value("SELECT end_reason FROM leases") == "no_progress"
        (row,) = await w.rows("SELECT kind, failures, next_at > now() AS later FROM host_failures")
        assert row == {"kind": "no_progress", "failures": 1, "later": True}
        assert "its disk is full" in str((await read_group(w.store, group)).waiting_for)
        await assign_round(w.store)
        assert (await observe_manager(w.store, host.manager_id)).lease is None, "offered at once"
        other = await w.host()
        await assign_round(w.store)
        await other.take(group)


async def test_claims_do_not_keep_a_lease_whose_setup_takes_too_long(database: str) -> None:
    """They get nothing before that."""
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group, prepare=False)
        await age(w, host, "taken_at", 3600)
        await idle_for_an_hour(w)
        assert (await host.claim(1)).tasks == []
        await assign_round(w.store)
        assert (await observe_manager(w.store, host.manager_id)).lease is None


@pytest.mark.parametrize("runs", [False, True], ids=["idle", "with a task"])
async def test_a_lease_without_progress_is_kept_while_a_task_runs_or_nothing_is_claimable(
    database: str, runs: bool
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1 + runs)
        host = await w.leased_host(group)
        tasks = (await host.claim(1)).tasks
        if runs:
            await host.renew(started=tasks)
        else:
            await host.finish(tasks)
        for column in ("taken_at", "last_claim_at"):
            await age(w, host, column, 3600)
        await idle_for_an_hour(w)
        await assign_round(w.store)
        assert (await observe_manager(w.store, host.manager_id)).lease is not None


async def test_a_lease_ended_for_a_group_is_its_capacity_until_the_host_is_free(
    database: str,
) -> None:
    async with world(database) as w:
        store: Store = replace(w.store, lease_terms=LeaseTerms(idle_threshold=0, longest_idle=0))
        first = await w.group("first")
        await w.submit(first)
        host = await w.leased_host(first)
        await host.finish((await host.claim()).tasks)
        second, third = await w.group("second"), await w.group("third")
        await w.submit(second)
        await assign_round(store)
        assert (await host.claim()).standing == "ending"
        other = await w.host()
        await assign_round(store)
        assert (await observe_manager(w.store, other.manager_id)).lease is None, "it has one coming"
        await w.submit(third)
        await assign_round(store)
        await other.take(third)


async def test_the_end_of_a_silence_pokes_the_scheduler_once(database: str) -> None:
    async with world(database) as w:
        host = await w.host()
        await w.pokes()
        await host.renew()
        assert await w.pokes() == set()
        await age(w, host, "last_contact_at", 11)
        await host.renew()
        assert await w.pokes() == {("scheduler", None)}
        await host.renew()
        assert await w.pokes() == set()


async def test_a_claim_that_had_to_wait_takes_no_more_than_idle_workers_can_begin(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        host.claim_seq += 1
        request = ClaimTasks(
            epoch=host.epoch,
            claim_seq=host.claim_seq,
            acked_seq=host.acked_seq,
            max_tasks=100,
            wait_seconds=30,
            max_late=2,
        )
        claim = asyncio.ensure_future(claim_tasks(w.store, host.manager_id, request))

        async def waits() -> bool:
            return bool(w.wake.waiting and await w.value("SELECT hungry FROM group_live"))

        await wait_until_async(waits, 20)
        await w.submit(group, 10)
        assert len((await claim).tasks) == 2
