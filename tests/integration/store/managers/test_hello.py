"""Processes of an agent: hello, goodbye, incarnations, machines, silence (protocol P4, P5)."""

from datetime import timedelta
from uuid import UUID

import pytest
from psycopg.sql import SQL, Identifier

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import (
    InvalidTransition,
    LeaseLost,
    ManagerIdInUse,
    NotFound,
    Superseded,
)
from mitosis.contracts.temporal_names import host_task_queue
from mitosis.contracts.wire import LeaseStanding, Renewal
from mitosis.store.leases.granting import get_grant, take_lease
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.contact import record_contact, renew
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import get_manager, observe_manager
from tests.support.campaigns import Host, World, stranded, world


def lost(host: Host, epoch: int | None) -> ReleaseRequest:
    return ReleaseRequest(manager_id=host.manager_id, epoch=epoch, reason=ReleaseReason.LOST)


async def working(w: World) -> tuple[Host, UUID]:
    """A host that holds three tasks, one of them started."""
    group = await w.group()
    await w.submit(group, 5)
    host = await w.leased_host(group)
    tasks = (await host.claim(3)).tasks
    await host.renew(started=tasks[:1])
    return host, group


@pytest.mark.spec("S002-45", "S000-74")
async def test_the_first_hello(database: str) -> None:
    async with world(database) as w:
        host = await w.host(hello=False)
        assert (await get_manager(w.store, host.manager_id)).state == "offline"
        answer = await host.hello()
        assert (answer.name, answer.incarnation, answer.lease, answer.owed) == ("host", 1, None, ())
        assert answer.temporal_task_queue == host_task_queue(host.manager_id)
        assert answer.host_lost_after_seconds == 90
        info = await get_manager(w.store, host.manager_id)
        assert (info.state, info.host_name, info.cores) == ("idle", "host", [0, 1])
        assert {("manager", host.manager_id), ("scheduler", None)} <= await w.pokes()
        with pytest.raises(NotFound):
            await Host(w, w.user_id).hello()


@pytest.mark.spec("S000-77", "S000-93")
async def test_a_greater_incarnation_gets_a_new_epoch_and_its_tasks_are_requeued(
    database: str,
) -> None:
    async with world(database) as w:
        host, group = await working(w)
        before = host.epoch
        answer = await host.hello()
        assert answer.lease.epoch > before
        assert answer.lease.task_group_id == group
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 1") == 0
        assert len((await host.claim()).tasks) == 5, "the environment is still ready"
        assert (await w.rows("SELECT sum(lost_count) AS n FROM open_task"))[0]["n"] == 1
        released = await release_lease(w.store, lost(host, before))
        assert released.status == "already_ended", "a timeout of the old epoch changes nothing"
        assert await stranded(w) == 0


@pytest.mark.spec("S000-149")
async def test_an_equal_incarnation_gets_the_same_answer(database: str) -> None:
    async with world(database) as w:
        host, _ = await working(w)
        epoch = host.epoch
        answer = await host.hello(incarnation=host.incarnation)
        assert answer.lease.epoch == epoch
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 1") == 3


async def test_a_lower_incarnation_is_superseded_and_ends_nothing(database: str) -> None:
    async with world(database) as w:
        host, _ = await working(w)
        late = Host(w, host.manager_id)
        await host.hello()
        assert len((await host.claim(1)).tasks) == 1
        with pytest.raises(Superseded):
            await late.hello(incarnation=1)
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 1") == 1
        late.incarnation, late.epoch = 1, host.epoch
        with pytest.raises(Superseded):
            await late.renew()


async def test_an_offer_is_withdrawn_and_an_ending_lease_is_not_renewed(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        epoch = await host.offered_epoch()
        assert (await host.hello()).lease is None
        with pytest.raises(LeaseLost):
            await take_lease(w.store, host.manager_id, epoch)
        await assign_round(w.store)
        await host.take(group)
        await w.cancel(group)
        assert (await host.hello()).lease is None
        assert (await observe_manager(w.store, host.manager_id)).lease is None


async def test_a_copied_agent_is_refused_while_the_first_is_in_contact(database: str) -> None:
    async with world(database) as w:
        host, group = await working(w)
        copy = Host(w, host.manager_id, machine="machine-2", incarnation=host.incarnation)
        with pytest.raises(ManagerIdInUse):
            await copy.hello()
        assert (await host.renew()).standing is LeaseStanding.ACTIVE
        copy.incarnation = 0
        answer = await copy.hello(take_over=True)
        assert answer.incarnation == host.incarnation + 1, "continues from PostgreSQL's value"
        with pytest.raises(Superseded):
            await host.renew()
        assert (await host.claim()).standing is LeaseStanding.GONE
        row = (await w.rows("SELECT state, degraded FROM environments"))[0]
        assert row == {"state": "gone", "degraded": True}, "nobody cleaned the old machine"
        assert (await copy.claim()).tasks == [], "and here nothing is prepared"
        await copy.prepare(group)
        assert len((await copy.claim()).tasks) == 5


async def test_another_machine_may_come_when_the_first_is_silent_for_long(database: str) -> None:
    async with world(database) as w:
        host, _ = await working(w)
        await w.rows("UPDATE leases SET alive_until = now()")
        await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '91 seconds'")
        other = Host(w, host.manager_id, machine="machine-2", incarnation=host.incarnation)
        assert (await other.hello()).lease is not None
        assert await w.value("SELECT max(lost_count) FROM open_task") == 1, "its host was lost"


async def test_a_copy_of_the_running_process_is_superseded_also_when_that_is_silent(
    database: str,
) -> None:
    """A cloned machine resumes with the incarnation of its original: only one of the two may go on."""
    async with world(database) as w:
        host = await w.host()
        await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '1 hour'")
        copy = Host(w, host.manager_id, machine="machine-2", incarnation=host.incarnation - 1)
        with pytest.raises(Superseded):
            await copy.hello()
        assert (await host.hello(incarnation=host.incarnation)).manager_id == host.manager_id


@pytest.mark.spec("S000-95")
async def test_after_a_reboot_everything_is_cleaned_and_then_prepared_again(database: str) -> None:
    """The files of the setup are still there, so its teardown comes first (P9)."""
    async with world(database) as w:
        host, group = await working(w)
        host.boot = "boot-2"
        answer = await host.hello()
        assert answer.owed == (group,)
        row = (await w.rows("SELECT state, degraded FROM environments"))[0]
        assert row == {"state": "owed", "degraded": False}
        assert await w.value("SELECT max(lost_count) FROM open_task") == 1
        with pytest.raises(InvalidTransition):
            await host.prepare(group)
        await host.clean(group)
        await host.prepare(group)
        assert len((await host.claim()).tasks) == 5


async def test_a_teardown_that_has_begun_is_finished_also_for_a_group_that_goes_on(
    database: str,
) -> None:
    async with world(database) as w:
        host, group = await working(w)
        await release_lease(
            w.store,
            ReleaseRequest(
                manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.MOVED
            ),
        )
        await host.environment(group, "tear_down")
        assert (await host.hello()).owed == (group,)
        assert await host.environment(group, "cleaned") == "gone"
        assert (await host.hello()).owed == ()


async def test_goodbye_gives_everything_back_and_a_late_one_does_nothing(database: str) -> None:
    async with world(database) as w:
        host, _ = await working(w)
        old = host.epoch
        await host.hello()
        await host.claim()
        await say_goodbye(w.store, host.manager_id, old)
        assert (await host.renew()).standing is LeaseStanding.ACTIVE
        await say_goodbye(w.store, host.manager_id, host.epoch)
        await say_goodbye(w.store, host.manager_id, host.epoch)
        assert (await get_manager(w.store, host.manager_id)).state == "offline"
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 0") == 5
        assert await w.value("SELECT max(lost_count) FROM open_task") == 1, (
            "charged by the hello before"
        )
        assert await stranded(w) == 0


@pytest.mark.spec("S002-141", "S002-176", "S002-265", "C-27")
async def test_silence_is_a_loss_only_after_its_time_in_postgresql(database: str) -> None:
    async with world(database, host_lost_after=timedelta(seconds=30)) as w:
        host, group = await working(w)
        alive = await release_lease(w.store, lost(host, host.epoch))
        assert alive.status == "alive"
        assert 25 < (alive.alive_in_seconds or 0) <= 30
        await w.rows("UPDATE leases SET alive_until = now() + interval '1 second'")
        await host.renew()
        view = await observe_manager(w.store, host.manager_id)
        assert view.lease is not None
        assert (view.lease.alive_in_seconds or 0) > 25
        await w.rows("UPDATE leases SET alive_until = now()")
        assert (await release_lease(w.store, lost(host, host.epoch))).status == "released"
        info = await get_manager(w.store, host.manager_id)
        assert (info.state, info.environments) == ("offline", {"campaign": "owed"})
        answer = await host.hello()
        assert answer.owed == (group,), "first thing to do"
        assert answer.lease is None


@pytest.mark.spec("S000-52", "S000-89", "S000-37")
async def test_any_contact_counts_and_a_group_has_its_own_time(database: str) -> None:
    async with world(database) as w:
        group = await w.group(host_lost_after=timedelta(seconds=20))
        await w.submit(group, 1)
        host = await w.leased_host(group)
        view = await observe_manager(w.store, host.manager_id)
        assert view.lease is not None
        assert 15 < (view.lease.alive_in_seconds or 0) <= 20
        assert (await host.renew()).host_lost_after_seconds == 20
        await w.rows("UPDATE leases SET alive_until = now()")
        await record_contact(w.store, host.manager_id)
        earlier = "UPDATE leases SET alive_until = alive_until - make_interval(secs => %s)"
        await w.rows(earlier, 15)
        assert (await release_lease(w.store, lost(host, host.epoch))).status == "alive"
        await w.rows(earlier, 5)
        assert (await release_lease(w.store, lost(host, host.epoch))).status == "released"
        assert (await host.renew()).standing == "gone"


async def test_a_silent_host_without_a_lease_is_lost_too(database: str) -> None:
    async with world(database) as w:
        host, _ = await working(w)
        await say_goodbye(w.store, host.manager_id, host.epoch)
        await host.hello()
        assert (await release_lease(w.store, lost(host, None))).status == "alive"
        await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '91 seconds'")
        view = await observe_manager(w.store, host.manager_id)
        assert view.online is False
        assert (view.lost_in_seconds or 0) < 0
        assert (await release_lease(w.store, lost(host, None))).status == "released"
        view = await observe_manager(w.store, host.manager_id)
        assert (view.lost_in_seconds, view.environments[0].state) == (None, "owed")


async def test_a_host_that_said_goodbye_has_its_time_to_come_back_to_its_environments(
    database: str,
) -> None:
    async with world(database) as w:
        host, _ = await working(w)
        await say_goodbye(w.store, host.manager_id, host.epoch)
        assert 80 < ((await observe_manager(w.store, host.manager_id)).lost_in_seconds or 0) <= 90
        assert (await release_lease(w.store, lost(host, None))).status == "alive"
        await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '91 seconds'")
        assert (await release_lease(w.store, lost(host, None))).status == "released"
        view = await observe_manager(w.store, host.manager_id)
        assert (view.lost_in_seconds, view.environments[0].state) == (None, "owed")


async def test_a_host_that_was_lost_without_a_lease_is_told_to_say_hello_again(
    database: str,
) -> None:
    async with world(database) as w:
        host = await w.host()
        idle = Renewal(incarnation=host.incarnation)
        assert (await renew(w.store, host.manager_id, idle)).standing is None
        await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '91 seconds'")
        assert (await release_lease(w.store, lost(host, None))).status == "released"
        assert (await renew(w.store, host.manager_id, idle)).standing is LeaseStanding.GONE
        assert not (await observe_manager(w.store, host.manager_id)).online, (
            "owed teardowns come first"
        )
        await host.hello(incarnation=host.incarnation)
        assert (await renew(w.store, host.manager_id, idle)).standing is None
        assert (await observe_manager(w.store, host.manager_id)).online


async def test_an_offer_that_was_taken_at_the_last_moment_is_not_withdrawn(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        (task,) = (await host.claim(1)).tasks
        withdrawal = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.UNREACHABLE
        )
        answer = await release_lease(w.store, withdrawal)
        assert (answer.status, answer.requeued) == ("alive", 0)
        assert (await host.finish([task])).standing is LeaseStanding.ACTIVE


async def test_losing_an_offer_withdraws_it_and_not_the_host(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        epoch = await host.offered_epoch()
        assert (await release_lease(w.store, lost(host, epoch))).status == "released"
        view = await observe_manager(w.store, host.manager_id)
        assert (view.online, view.lease) == (True, None)


async def test_held_ids_bring_back_what_got_lost_on_the_way(database: str) -> None:
    """An answer that was acknowledged but never arrived whole: its rows go back to ready."""
    async with world(database) as w:
        host, _ = await working(w)
        kept = list(host.held)[:2]
        await host.renew(held=kept)
        ready = await w.rows("SELECT id FROM open_task WHERE state = 0")
        assert {row["id"] for row in ready} >= set(host.held) - set(kept)
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 1") == 2
        claimed = await host.claim(lose=True)
        assert len(claimed.tasks) == 3
        await host.renew(held=kept)
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 1") == 5, (
            "not acknowledged"
        )


async def test_returned_tasks_are_ready_again_and_started_is_noted_once(database: str) -> None:
    async with world(database) as w:
        host, _ = await working(w)
        first, second, third = host.held.values()
        started = "SELECT started_at FROM open_task WHERE id = %s"
        before = await w.value(started, first.task_id)
        assert before is not None
        await host.renew(started=[first, second], returned=[third])
        assert await w.value(started, first.task_id) == before
        assert await w.value(started, second.task_id) is not None
        assert await w.value("SELECT state FROM open_task WHERE id = %s", third.task_id) == 0
        await host.renew(returned=[third])
        (again,) = (await host.claim(1)).tasks
        assert (again.task_id, again.attempt) == (third.task_id, 2)
        await host.renew(returned=[third])
        assert await w.value("SELECT state FROM open_task WHERE id = %s", third.task_id) == 1


@pytest.mark.spec("S000-51")
async def test_a_cancelled_group_says_how_to_end(database: str) -> None:
    async with world(database) as w:
        host, group = await working(w)
        await w.cancel(group, reason="enough", grace_seconds=3)
        order = (await host.renew()).order
        assert order is not None
        assert (order.kill, order.grace_seconds, order.reason) == (True, 3, "enough")


@pytest.mark.spec("C-10", "S000-28")
async def test_unless_told_otherwise_what_runs_has_thirty_seconds_to_end(database: str) -> None:
    async with world(database) as w:
        for spec, verb, expected in (
            ({}, {}, 30),
            ({"cancel_grace_seconds": 7}, {}, 7),
            ({"cancel_grace_seconds": 7}, {"grace_seconds": 2}, 2),
        ):
            group = await w.group(f"within-{expected}", **spec)
            await w.submit(group)
            host = await w.leased_host(group)
            await host.claim()
            await w.cancel(group, **verb)
            order = (await host.renew()).order
            assert order is not None
            assert (order.kill, order.grace_seconds) == (True, expected)


@pytest.mark.spec("S000-139", "S000-147")
async def test_a_group_that_is_there_no_more_takes_its_leases_along(database: str) -> None:
    """The API deletes settled groups only; whatever else takes one away is noticed at the next call."""
    async with world(database) as w:
        host, _ = await working(w)
        tasks = list(host.held.values())
        for table in ("task", "open_task"):
            await w.rows(SQL("DELETE FROM {}").format(Identifier(table)))
        await w.rows("DELETE FROM task_groups")
        answer = await host.renew()
        assert (answer.standing, answer.order and answer.order.kill) == (LeaseStanding.GONE, True)
        claimed = await host.claim()
        assert (claimed.standing, claimed.tasks) == (LeaseStanding.GONE, [])
        reported = await host.finish(tasks)
        assert (reported.standing, {*reported.statuses}) == (LeaseStanding.GONE, {"unknown"})
        view = await observe_manager(w.store, host.manager_id)
        assert (view.online, view.lease) == (True, None)
        assert [(e.state, e.cleanable) for e in view.environments] == [("ready", True)]


async def test_a_lease_is_granted_to_its_manager_only(database: str) -> None:
    async with world(database) as w:
        group = await w.group(cancel_grace_seconds=7, fence="kill")
        await w.submit(group, 1)
        host, other = await w.host(), await w.host()
        await assign_round(w.store)
        view = await observe_manager(w.store, host.manager_id)
        if view.lease is None:
            host, other = other, host
        epoch = await host.offered_epoch()
        with pytest.raises(LeaseLost):
            await take_lease(w.store, other.manager_id, epoch)
        with pytest.raises(LeaseLost):
            await get_grant(w.store, host.manager_id, epoch)
        first = await take_lease(w.store, host.manager_id, epoch)
        assert await take_lease(w.store, host.manager_id, epoch) == first, "again is success"
        assert await get_grant(w.store, host.manager_id, epoch) == first
        assert (first.task_group_id, first.group_name, first.fence) == (group, "alice", "kill")
        assert (first.cancel_grace_seconds, first.environment_state) == (7, None)
