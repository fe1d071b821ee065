"""The assignment round against a real database: who is idle, what is hungry, nobody twice."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.http import RegisterManager
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.store.groups.assignment import add_managers
from mitosis.store.groups.views import read_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.contact import record_contact
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.registration import register_manager
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import get_manager, observe_manager
from mitosis.store.pg.database import Database
from mitosis.store.store import Store
from mitosis.store.users.accounts import create_user
from tests.support.campaigns import Host, failed, held, until_blocked, world


@pytest.mark.spec("S002-42", "S002-146", "S000-108", "S002-28", "S002-19")
async def test_the_higher_priority_gets_the_only_host(database: str) -> None:
    async with world(database) as w:
        old, high = await w.group("old"), await w.group("high", priority=1)
        await w.submit(old, 1)
        await w.submit(high, 1)
        host = await w.host()
        await w.pokes()
        answer = await assign_round(w.store)
        assert (answer.offered, answer.resignalled) == (1, 0)
        view = await observe_manager(w.store, host.manager_id)
        assert view.lease is not None
        assert (view.lease.task_group_id, view.lease.state) == (high, "offered")
        assert await w.pokes() == {("manager", host.manager_id)}


@pytest.mark.spec("S000-04", "S000-86", "S000-98")
async def test_each_host_gets_the_best_of_the_groups_that_it_may_run(database: str) -> None:
    """Ranked anew from PostgreSQL by every round, so by a process that has just started too."""
    async with world(database) as w:
        for name, priority, tags in (
            ("low", 1, {"cpu"}),
            ("gpu", 2, {"gpu"}),
            ("high", 3, {"cpu"}),
        ):
            await w.submit(await w.group(name, priority=priority, tags=tags, max_managers=1))
        named = await w.group("named", priority=9, assignment_method="user_specified")
        await w.submit(named)
        cpu, gpu = await w.host(tags=["cpu"]), await w.host(tags=["gpu"])
        await add_managers(w.store, named, [gpu.manager_id], w.user_id)

        async def given(host: Host) -> str:
            lease = (await observe_manager(w.store, host.manager_id)).lease
            assert lease is not None
            await host.take(lease.task_group_id)
            await host.finish((await host.claim()).tasks)
            request = ReleaseRequest(
                manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.MOVED
            )
            await release_lease(w.store, request)
            return lease.task_group_name

        async with Database.open(database, pool_size=1) as restarted:
            for store, expected in (
                (w.store, ("high", "named")),
                (Store(database=restarted), ("low", "gpu")),
            ):
                assert (await assign_round(store)).offered == 2
                assert (await given(cpu), await given(gpu)) == expected


@pytest.mark.spec("C-05")
async def test_without_a_limit_a_group_has_every_host_it_can_use_and_a_host_one_group(
    database: str,
) -> None:
    async with world(database) as w:
        first = await w.group("first")
        await w.submit(first, 100)
        hosts = [await w.host() for _ in range(7)]
        assert (await read_group(w.store, first)).max_managers is None
        assert (await assign_round(w.store)).offered == len(hosts)
        second = await w.group("second", priority=9)
        await w.submit(second, 100)
        for host in hosts:
            await host.take(first)
        assert (await assign_round(w.store)).offered == 0
        assert await w.value("SELECT count(DISTINCT manager_id) FROM leases") == len(hosts)
        with pytest.raises(psycopg.errors.UniqueViolation):
            await w.rows(
                "INSERT INTO leases (group_id, manager_id) SELECT 2, min(id) FROM managers"
            )


async def test_an_open_offer_is_poked_again_and_counts_as_capacity(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host, _ = await w.host(), await w.host()
        assert (await assign_round(w.store)).offered == 1
        await w.pokes()
        again = await assign_round(w.store)
        assert (again.offered, again.resignalled) == (0, 1)
        assert again.next_round_in_seconds == 10
        assert await w.pokes() == {("manager", host.manager_id)}
        await w.submit(group, 1)
        assert (await assign_round(w.store)).offered == 1


@pytest.mark.spec("S002-175")
async def test_hosts_that_come_first_get_the_leases_of_a_group(database: str) -> None:
    async with world(database) as w:
        group = await w.group(max_managers=2)
        await w.submit(group, 100)
        offered = []
        for _ in range(4):
            host = await w.host()
            await assign_round(w.store)
            lease = (await observe_manager(w.store, host.manager_id)).lease
            offered.append(lease is not None)
        assert offered == [True, True, False, False]


@pytest.mark.spec("S002-40", "S002-108")
async def test_who_is_not_idle_gets_nothing(database: str) -> None:
    async with world(database) as w:
        group = await w.group(max_managers=5)
        await w.submit(group, 100)
        silent, draining, offline, foreign = [await w.host() for _ in range(4)]
        never = await w.host(hello=False)
        await w.rows(
            "UPDATE manager_live SET last_contact_at = now() - interval '11 seconds'"
            " WHERE manager_id = (SELECT id FROM managers WHERE uuid = %s)",
            silent.manager_id,
        )
        await w.rows("UPDATE managers SET draining = true WHERE uuid = %s", draining.manager_id)
        await say_goodbye(w.store, offline.manager_id, None)
        await w.rows(
            "UPDATE user_group_managers SET role = 'read'"
            " WHERE manager_id = (SELECT id FROM managers WHERE uuid = %s)",
            foreign.manager_id,
        )
        assert (await assign_round(w.store)).offered == 0
        assert (await get_manager(w.store, draining.manager_id)).state == "draining"
        assert (await get_manager(w.store, never.manager_id)).state == "offline"
        busy = await w.host()
        assert (await assign_round(w.store)).offered == 1
        await busy.take(group)
        assert (await assign_round(w.store)).offered == 0


@pytest.mark.spec("S002-108")
async def test_only_groups_with_claimable_work_that_go_on(database: str) -> None:
    async with world(database) as w:
        await w.host()
        empty, closed, cancelled, forced = [await w.group(f"g{i}") for i in range(4)]
        for group in (closed, cancelled, forced):
            await w.submit(group, 1)
        await w.close(closed)
        await w.cancel(cancelled)
        await w.complete(forced, force=True)
        assert (await assign_round(w.store)).offered == 1
        assert await w.value("SELECT group_id FROM leases") == 2, "closed may finish"
        assert empty is not None


async def test_a_delayed_task_is_waited_for_by_the_clock(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        policy = RetryPolicy(max_attempts=2, delay_seconds=100)
        await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=policy)])
        host = await w.leased_host(group)
        (task,) = (await host.claim()).tasks
        await host.report(failed(task, exit_code=1))
        request = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.MOVED
        )
        await release_lease(w.store, request)
        assert "next attempt" in str((await read_group(w.store, group)).waiting_for)
        answer = await assign_round(w.store)
        assert answer.offered == 0
        assert 90 < (answer.next_round_in_seconds or 0) <= 100
        await w.rows("UPDATE open_task SET not_before = now()")
        assert (await assign_round(w.store)).offered == 1


async def test_more_groups_than_a_page(database: str) -> None:
    """The first 250 groups want a tag that nobody has; the last one still gets its host."""
    async with world(database) as w:
        await w.group("template", tags={"rare"}, priority=1)
        await w.rows(
            "INSERT INTO task_groups"
            " (name, user_group_id, creator_id, tags, worker_allocation_plan, priority)"
            " SELECT 'g' || i, user_group_id, creator_id, tags, worker_allocation_plan, priority"
            " FROM task_groups, generate_series(1, 250) AS i"
        )
        await w.rows(
            "INSERT INTO group_live (group_id) SELECT id FROM task_groups ON CONFLICT DO NOTHING"
        )
        groups = await w.rows("SELECT uuid FROM task_groups WHERE name LIKE 'g%%'")
        await asyncio.gather(*(w.submit(row["uuid"], 1) for row in groups))
        last = await w.group("last")
        await w.submit(last, 1)
        host = await w.host()
        assert (await assign_round(w.store)).offered == 1
        view = await observe_manager(w.store, host.manager_id)
        assert view.lease is not None
        assert view.lease.task_group_id == last


@pytest.mark.spec("S002-69")
async def test_rounds_at_the_same_time_never_assign_twice(database: str) -> None:
    async with world(database, pool_size=12) as w:
        groups = [await w.group(f"g{i}", max_managers=2) for i in range(6)]
        for group in groups:
            await w.submit(group, 10)
        hosts = [await w.host() for _ in range(10)]
        answers = await asyncio.gather(*(assign_round(w.store) for _ in range(8)))
        assert sum(answer.offered for answer in answers) == 10
        per_group = await w.rows("SELECT count(*) AS n FROM leases GROUP BY group_id")
        assert max(row["n"] for row in per_group) == 2
        per_host = await w.rows("SELECT count(*) AS n FROM leases GROUP BY manager_id")
        assert {row["n"] for row in per_host} == {1}
        assert len(hosts) == 10


@pytest.mark.spec("S002-41", "S002-126", "S002-164", "S002-165", "S002-173")
async def test_after_a_group_the_host_goes_to_the_next_by_priority(database: str) -> None:
    async with world(database) as w:
        first = await w.group("first", priority=5)
        await w.submit(first, 1)
        host = await w.leased_host(first)
        await host.finish((await host.claim()).tasks)
        await w.close(first)
        await w.control.finalize(first)
        assert (await host.claim()).standing == "ending", "closed, and nothing is left to do"
        request = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.GROUP_ENDED
        )
        await release_lease(w.store, request)
        await host.clean(first)
        assert (await assign_round(w.store)).offered == 0, "nobody else has work"
        free = await get_manager(w.store, host.manager_id)
        assert (free.state, free.lease) == ("idle", None)
        for name, priority in (("low", 1), ("high", 3), ("other", 2)):
            await w.submit(await w.group(name, priority=priority), 1)
        assert (await assign_round(w.store)).offered == 1
        view = await observe_manager(w.store, host.manager_id)
        assert view.lease is not None
        assert view.lease.task_group_name == "high"


async def test_a_host_of_another_user_group_is_not_used(database: str) -> None:
    async with world(database) as w:
        bob = await create_user(w.store, "bob")
        bobs, _ = await register_manager(w.store, RegisterManager(name="bobs"), bob.user_id)
        host = Host(w, bobs)
        await host.hello()
        group = await w.group()
        await w.submit(group, 1)
        assert (await assign_round(w.store)).offered == 0


async def test_an_overdue_host_is_poked(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await w.pokes()
        await assign_round(w.store)
        assert await w.pokes() == set()
        await w.rows("UPDATE leases SET alive_until = now() - interval '1 second'")
        expected = await w.control.expected()
        assert expected.overdue_managers == (host.manager_id,)
        assert (await assign_round(w.store)).resignalled == 1
        assert ("manager", host.manager_id) in await w.pokes()
        await w.rows("INSERT INTO api_pulse (beat_at) VALUES (now() - interval '1 minute')")
        expected = await w.control.expected()
        assert expected.overdue_managers == (), "no API is there to notice contact"
        assert expected.managers == (host.manager_id,)
        assert expected.task_groups == (group,)
        assert (await assign_round(w.store)).resignalled == 0
        assert await w.pokes() == set(), "each poke costs events, and nothing can change"


async def test_the_end_of_a_silence_pokes_the_workflow_of_a_leased_host(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '1 minute'")
        await w.pokes()
        await record_contact(w.store, host.manager_id, 1)
        assert ("manager", host.manager_id) in await w.pokes()
        await record_contact(w.store, host.manager_id, 1)
        assert await w.pokes() == set()


async def test_a_round_waits_for_the_one_before_it_and_sees_its_offers(database: str) -> None:
    async with world(database) as w, held(database) as before:
        group = await w.group(max_managers=1)
        await w.submit(group, 10)
        first, _ = await w.host(), await w.host()
        assert (await assign_round(Store(database=before))).offered == 1
        await before.held.execute(
            "UPDATE managers SET draining = true WHERE uuid = %s", (first.manager_id,)
        )
        after = asyncio.create_task(assign_round(w.store))
        await until_blocked(w)
        await before.commit()
        assert (await after).offered == 0


async def test_groups_with_a_lease_or_a_timer_or_that_are_to_end_are_urgent(database: str) -> None:
    """Their workflows are started first when Temporal has lost its data."""
    async with world(database) as w:
        leased = await w.group("leased")
        await w.submit(leased, 1)
        await w.leased_host(leased)
        plain = await w.group("plain")
        inactive = await w.group("inactive", auto_close_timeout=timedelta(hours=1))
        deadline = await w.group("deadline", close_deadline=datetime.now(UTC) + timedelta(hours=1))
        closed = await w.group("closed")
        await w.submit(closed, 1)
        await w.close(closed)
        expected = await w.control.expected()
        assert expected.urgent_groups == (leased, inactive, deadline, closed)
        assert expected.task_groups == (leased, plain, inactive, deadline, closed)
