"""Leases that are taken from a group with work, renewed, or ended with their affinity (C-31, C-36)."""

from dataclasses import replace

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.draining import drain_manager, resume_manager
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from tests.support.campaigns import Host, World, world

AFFINITY_IS_OVER = "UPDATE leases SET affinity_until = now() WHERE state = 'active'"
LEASE = """SELECT state, draining, renewed, freed_for, extract(epoch FROM ask_back_at - now()) AS grace,
                  extract(epoch FROM affinity_until - now()) AS affinity
             FROM leases WHERE state <> 'ended' ORDER BY epoch"""


async def busy_host(
    w: World, priority: int = -100, **spec: object
) -> tuple[Host, list[ClaimedTask]]:
    """A host whose group has one running task, one that it holds, and one that is ready."""
    group = await w.group("holder", priority=priority, **spec)
    await w.submit(group, 3)
    host = await w.leased_host(group)
    tasks = list((await host.claim(2)).tasks)
    await host.renew(started=tasks[:1])
    return host, tasks


async def let_go(w: World, host: Host) -> None:
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.MOVED
    )
    await release_lease(w.store, request)


async def comes_next(w: World, host: Host, what: str, seconds: float) -> None:
    """Assert what the workflow of the host has a timer for."""
    lease = (await observe_manager(w.store, host.manager_id)).lease
    assert lease is not None
    assert lease.turn is not None
    assert lease.turn.what == what
    assert lease.turn.in_seconds == pytest.approx(seconds, abs=5)


async def holder_of(w: World, host: Host) -> str | None:
    lease = (await observe_manager(w.store, host.manager_id)).lease
    return None if lease is None else lease.task_group_name


@pytest.mark.spec("C-31", "C-27", "S000-140", "S002-158")
async def test_a_group_of_higher_priority_gets_the_host_at_the_end_of_affinity_between_tasks(
    database: str,
) -> None:
    async with world(database) as w:
        host, (running, kept) = await busy_host(w)
        high = await w.group("high", priority=100)
        await w.submit(high, 9)
        await assign_round(w.store)
        (safe,) = await w.rows(LEASE)
        assert (safe["draining"], safe["freed_for"]) == (False, None)
        await comes_next(w, host, "affinity", 3600)
        await w.rows(AFFINITY_IS_OVER)
        await comes_next(w, host, "affinity", 0)

        answer = await assign_round(w.store)
        await comes_next(w, host, "ask_back", 300)
        (taken,) = await w.rows(LEASE)
        assert (taken["state"], taken["draining"]) == ("active", True)
        assert float(taken["grace"]) == pytest.approx(300, abs=5)
        assert answer.next_round_in_seconds == pytest.approx(300, abs=5)
        assert not (await host.claim()).tasks, "it claims nothing more"
        await host.finish([running])
        assert (await host.renew()).standing == "active", "what it holds goes on"
        await host.finish([kept])
        assert (await host.renew()).standing == "ending"
        await let_go(w, host)
        assert (await assign_round(w.store)).offered == 1
        assert await holder_of(w, host) == "high"


@pytest.mark.spec("C-31", "S000-140")
async def test_after_the_grace_what_has_not_started_is_asked_back_and_what_runs_finishes(
    database: str,
) -> None:
    async with world(database) as w:
        host, (running, kept) = await busy_host(w)
        await w.submit(await w.group("high", priority=100), 1)
        await w.rows(AFFINITY_IS_OVER)
        await assign_round(w.store)
        await w.rows("UPDATE leases SET ask_back_at = ask_back_at - interval '299 s'")
        await assign_round(w.store)
        assert (await host.renew()).standing == "active"
        await w.rows("UPDATE leases SET ask_back_at = ask_back_at - interval '1 s'")
        await w.pokes()
        await assign_round(w.store)
        assert ("manager", host.manager_id) in await w.pokes()
        assert (await host.renew(returned=[kept])).standing == "ending"
        await host.finish([running])
        await let_go(w, host)
        await assign_round(w.store)
        assert await holder_of(w, host) == "high"
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 0") == 3


@pytest.mark.spec("C-31", "S002-163", "C-02", "S002-173")
async def test_without_a_group_that_goes_first_the_lease_is_renewed_and_stays_contestable(
    database: str,
) -> None:
    async with world(database) as w:
        host, _ = await busy_host(w, priority=0)
        lower = await w.group("lower", priority=-1)
        await w.submit(lower)
        for _ in range(2):
            await w.rows(AFFINITY_IS_OVER)
            await assign_round(w.store)
            (lease,) = await w.rows(LEASE)
            assert (lease["state"], lease["renewed"], lease["draining"]) == ("active", True, False)
            assert float(lease["affinity"]) == pytest.approx(3600, abs=5)
            await comes_next(w, host, "affinity", 3600)
        assert (await host.claim(1)).tasks, "it goes on"
        await w.submit(await w.group("higher", priority=1))
        await assign_round(w.store)
        (lease,) = await w.rows(LEASE)
        assert lease["draining"], "a renewed lease binds nothing against a group without any host"
        assert not (await host.claim()).tasks


@pytest.mark.spec("C-31", "S002-173")
async def test_a_lease_ends_with_its_affinity_when_nothing_of_the_group_is_unfinished(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await assign_round(w.store)
        assert (await host.renew()).standing == "active"
        await w.rows(AFFINITY_IS_OVER)
        await assign_round(w.store)
        assert (await host.renew()).standing == "ending"
        await let_go(w, host)
        await w.submit(group)
        await assign_round(w.store)
        await host.take(group, prepare=False)
        assert len((await host.claim()).tasks) == 1, "its environment has stayed"


@pytest.mark.spec("C-31")
async def test_with_equal_priority_the_user_group_with_two_leases_fewer_or_none_goes_first(
    database: str,
) -> None:
    async with world(database) as w:
        rich = await w.group("rich", worker_allocation_plan={"worker_count": 1})
        await w.submit(rich, 20)
        hosts = [await w.host() for _ in range(4)]
        await assign_round(w.store)
        for host in hosts:
            await host.take(rich)
            await host.renew(started=(await host.claim(1)).tasks)
        poor = await w.group("poor", worker_allocation_plan={"worker_count": 1})
        await w.submit(poor, 20)
        await w.rows(AFFINITY_IS_OVER)
        for _ in range(3):
            await assign_round(w.store)
        taken = "SELECT count(*) FROM leases WHERE draining"
        assert await w.value(taken) == 2, "4 and 0 leases become 2 and 2"


@pytest.mark.spec("C-36", "S000-155")
async def test_a_host_that_was_moved_six_times_in_an_hour_stays_and_other_ends_do_not_count(
    database: str,
) -> None:
    async with world(database) as w:
        host, _ = await busy_host(w)
        await w.submit(await w.group("high", priority=100), 1)
        former = (
            "INSERT INTO leases (group_id, manager_id, state, ended_at, end_reason, contested_at)"
            " SELECT group_id, manager_id, 'ended', now(), 'moved', now() - n * interval '9 min 50 s'"
            " FROM leases, generate_series(1, 6) AS n WHERE state = 'active'"
        )
        await w.rows(former)
        await w.rows(AFFINITY_IS_OVER)
        answer = await assign_round(w.store)
        assert not await w.value("SELECT draining FROM leases WHERE state = 'active'")
        assert answer.next_round_in_seconds == pytest.approx(60, abs=5), "6 * 590 s ago is an hour"
        await w.rows(
            "UPDATE leases SET contested_at = NULL WHERE epoch = (SELECT max(epoch) FROM leases)"
        )
        await w.rows(AFFINITY_IS_OVER)
        await assign_round(w.store)
        assert await w.value("SELECT draining FROM leases WHERE state = 'active'")
        assert await holder_of(w, host) == "holder"


@pytest.mark.spec("C-36")
async def test_a_host_that_was_taken_has_been_moved_for_an_hour(database: str) -> None:
    async with world(database) as w:
        w.store = replace(w.store, moves_per_hour=1)
        host, tasks = await busy_host(w)
        high, highest = await w.group("high", priority=100), await w.group("highest", priority=200)
        await w.submit(high, 2)
        await w.rows(AFFINITY_IS_OVER)
        await assign_round(w.store)
        await host.finish(tasks)
        assert (await host.renew()).standing == "ending"
        await let_go(w, host)
        await assign_round(w.store)
        await host.take(high)
        await host.renew(started=(await host.claim(1)).tasks)
        await w.submit(highest, 1)
        await w.rows(AFFINITY_IS_OVER)
        answer = await assign_round(w.store)
        taken = "SELECT draining FROM leases WHERE state = 'active'"
        assert not await w.value(taken), "once in this hour is enough"
        assert answer.next_round_in_seconds is not None
        await w.rows("UPDATE leases SET contested_at = contested_at - interval '1 hour'")
        await assign_round(w.store)
        assert await w.value(taken)


@pytest.mark.spec("C-36", "S000-155")
async def test_an_idle_host_goes_from_one_group_to_the_next_whatever_its_moves(
    database: str,
) -> None:
    async with world(database) as w:
        w.store = replace(
            w.store,
            moves_per_hour=1,
            lease_terms=LeaseTerms(idle_threshold=0, longest_idle=0),
        )
        first = await w.group("first")
        await w.submit(first)
        host = await w.leased_host(first)
        for name in ("second", "third", "fourth"):
            await host.finish((await host.claim()).tasks)
            group = await w.group(name)
            await w.submit(group)
            await assign_round(w.store)
            assert (await host.claim()).standing == "ending"
            await let_go(w, host)
            await assign_round(w.store)
            await host.take(group)
        await host.renew(started=(await host.claim(1)).tasks)
        await w.submit(await w.group("high", priority=100), 1)
        await w.rows(AFFINITY_IS_OVER)
        await assign_round(w.store)
        assert await w.value("SELECT draining FROM leases WHERE state = 'active'"), "a first move"


@pytest.mark.spec("C-03", "S002-161", "S002-174")
async def test_a_group_with_a_thousand_ready_tasks_gets_the_hosts_that_are_idle_under_another_lease(
    database: str,
) -> None:
    async with world(database) as w:
        idle = await w.group("idle")
        await w.submit(idle, 60)
        hosts = [await w.host() for _ in range(3)]
        await assign_round(w.store)
        for host in hosts:
            await host.take(idle)
            await host.finish((await host.claim(20)).tasks)
        big = await w.group("big", priority=9)
        await w.submit(big, 1000)
        free = await w.host()
        await assign_round(w.store)
        assert await holder_of(w, free) == "big"
        await w.rows("UPDATE leases SET busy_at = NULL, taken_at = now() - interval '179 s'")
        await w.pokes()
        await assign_round(w.store)
        assert await w.value("SELECT count(*) FROM leases WHERE state = 'ending'") == 0
        assert {("manager", host.manager_id) for host in hosts} <= await w.pokes()
        await comes_next(w, hosts[0], "idle", 1)
        await assign_round(w.store)
        assert ("manager", hosts[0].manager_id) not in await w.pokes(), "nothing is new"
        await w.rows("UPDATE leases SET taken_at = taken_at - interval '1 s'")
        await assign_round(w.store)
        assert await w.value("SELECT count(*) FROM leases WHERE state = 'ending'") == 3
        for host in hosts:
            await let_go(w, host)
        assert (await assign_round(w.store)).offered == 3
        assert [await holder_of(w, host) for host in hosts] == ["big"] * 3


@pytest.mark.spec("C-31")
async def test_a_resume_keeps_a_host_that_is_on_its_way_to_another_group(database: str) -> None:
    async with world(database) as w:
        host, _ = await busy_host(w)
        await w.submit(await w.group("high", priority=100), 1)
        await w.rows(AFFINITY_IS_OVER)
        await assign_round(w.store)
        await drain_manager(w.store, host.manager_id)
        await resume_manager(w.store, host.manager_id)
        assert not (await host.claim()).tasks


async def test_a_new_process_of_a_host_that_is_on_its_way_gets_no_new_epoch(database: str) -> None:
    async with world(database) as w:
        host, _ = await busy_host(w)
        high = await w.group("high", priority=100)
        await w.submit(high, 1)
        await w.rows(AFFINITY_IS_OVER)
        await assign_round(w.store)
        assert (await host.hello()).lease is None
        assert (await assign_round(w.store)).offered == 1
        assert await holder_of(w, host) == "high"
