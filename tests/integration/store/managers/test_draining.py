"""Hosts are drained, resumed, renamed, retagged and deleted, and each has its effect."""

import asyncio
from typing import Any

import pytest

from mitosis.contracts.agent_http import AttemptList
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import AlreadyExists, Conflict, NotFound
from mitosis.contracts.http import DrainInfo, RegisterManager
from mitosis.contracts.manager_verbs import ManagerUpdate
from mitosis.contracts.wire import LeaseStanding, Renewal
from mitosis.store.groups.assignment import refresh_managers
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.changes import delete_manager, update_manager
from mitosis.store.managers.contact import renew
from mitosis.store.managers.draining import drain_manager, resume_manager
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.registration import register_manager, token_version
from mitosis.store.managers.release import release_over
from mitosis.store.managers.views import get_manager, list_managers, observe_manager
from tests.support.campaigns import Host, World, held, until_blocked, world


async def drain_of(w: World, host: Host) -> DrainInfo:
    drain = (await get_manager(w.store, host.manager_id)).drain
    assert drain is not None
    return drain


async def state_of(w: World, host: Host) -> str:
    return (await get_manager(w.store, host.manager_id)).state.value


async def without_epoch(w: World, host: Host) -> Any:
    return await renew(w.store, host.manager_id, Renewal(incarnation=host.incarnation))


@pytest.mark.spec("C-07")
async def test_a_drained_host_finishes_what_it_has_and_takes_nothing_new(database: str) -> None:
    async with world(database) as w:
        group = await w.group("render")
        await w.submit(group, 5)
        host = await w.leased_host(group)
        first, second = (await host.claim(2)).tasks
        await drain_manager(w.store, host.manager_id, reason="new disk")
        assert await state_of(w, host) == "draining"
        assert (await host.claim()).tasks == []
        assert (await host.renew()).standing is LeaseStanding.ACTIVE, "it holds tasks"
        drain = await drain_of(w, host)
        assert (drain.reason, drain.empty) == ("new disk", False)
        assert drain.waits_for == ["2 tasks of render to end"]
        await host.finish([first])
        assert (await host.renew()).standing is LeaseStanding.ACTIVE
        await host.finish([second])
        assert (await host.renew()).standing is LeaseStanding.ENDING, "it holds nothing more"
        assert (await drain_of(w, host)).waits_for == ["the lease of render to end"]
        await release_over(w.store, host.manager_id, host.epoch)
        assert (await drain_of(w, host)).waits_for == ["the teardown of render"]
        assert (await without_epoch(w, host)).teardowns == [group], "also of a group that goes on"
        await host.clean(group)
        assert (await drain_of(w, host)).empty
        await assign_round(w.store)
        assert (await observe_manager(w.store, host.manager_id)).lease is None, "no offer"
        assert await state_of(w, host) == "draining"
        await resume_manager(w.store, host.manager_id)
        assert await state_of(w, host) == "idle"
        await assign_round(w.store)
        await host.take(group)
        assert len((await host.claim()).tasks) == 3
        await w.check()


async def test_now_gives_back_what_has_not_started(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        running, waiting = (await host.claim(2)).tasks
        await drain_manager(w.store, host.manager_id, now=True)
        answer = await host.renew(started=[running], returned=[waiting])
        assert answer.standing is LeaseStanding.ENDING
        assert answer.order is not None
        assert not answer.order.kill, "what runs finishes"
        other = await w.leased_host(group)
        assert [task.task_id for task in (await other.claim()).tasks] == [waiting.task_id]
        await host.finish([running])
        await w.check()


async def test_a_resumed_host_goes_on_under_its_lease(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 3)
        host = await w.leased_host(group)
        await host.claim(1)
        await drain_manager(w.store, host.manager_id)
        await resume_manager(w.store, host.manager_id)
        assert (await host.renew()).standing is LeaseStanding.ACTIVE
        assert len((await host.claim()).tasks) == 2
        assert await state_of(w, host) == "executing"


async def test_another_host_is_offered_while_one_drains(database: str) -> None:
    """The lease of a drained host is no capacity, although it has claimed a moment ago."""
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        await host.claim(1)
        other = await w.host()
        await assign_round(w.store)
        assert (await observe_manager(w.store, other.manager_id)).lease is None
        await drain_manager(w.store, host.manager_id)
        await assign_round(w.store)
        assert (await observe_manager(w.store, other.manager_id)).lease is not None


async def test_the_offer_of_a_drained_host_is_withdrawn(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await assign_round(w.store)
        await w.pokes()
        await drain_manager(w.store, host.manager_id)
        assert (await observe_manager(w.store, host.manager_id)).lease is None
        assert ("scheduler", None) in await w.pokes()
        assert (await drain_of(w, host)).empty


async def test_a_claim_in_flight_comes_before_the_drain_and_none_after_it(database: str) -> None:
    async with world(database) as w, held(database) as other:
        group = await w.group()
        await w.submit(group, 3)
        host = await w.leased_host(group)
        host.world = w.on(other)
        claimed = (await host.claim(1)).tasks
        draining = asyncio.create_task(drain_manager(w.store, host.manager_id))
        await until_blocked(w)
        await other.commit()
        await draining
        host.world = w
        assert (await drain_of(w, host)).waits_for == ["1 task of campaign to end"]
        await host.finish(claimed)
        host.world = w.on(other)
        await drain_manager(w.on(other).store, host.manager_id)
        host.world = w
        claim = asyncio.create_task(host.claim())
        await until_blocked(w)
        await other.commit()
        assert (await claim).tasks == [], "it had begun before the drain was committed"


async def test_a_round_beside_a_drain_in_flight_offers_nothing(database: str) -> None:
    async with world(database) as w, held(database) as other:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await drain_manager(w.on(other).store, host.manager_id)
        assert (await assign_round(w.store)).offered == 0, "and it does not wait"
        await other.commit()
        assert (await assign_round(w.store)).offered == 0


async def test_a_drained_host_that_restarts_gets_no_lease(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        await drain_manager(w.store, host.manager_id)
        assert (await host.hello()).lease is None
        await host.hello(journal=AttemptList.of([AttemptKey(tasks[0].task_id, 1)]))
        assert (await observe_manager(w.store, host.manager_id)).lease is None
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 0") == 2
        assert (await observe_manager(w.store, host.manager_id)).environments[0].cleanable


async def test_a_renamed_host_has_a_name_of_its_own(database: str) -> None:
    async with world(database) as w:
        first, second = await w.host(), await w.host()
        for host, name in ((first, "a"), (second, "b")):
            await update_manager(w.store, host.manager_id, ManagerUpdate(name=name))
        with pytest.raises(AlreadyExists, match="another host of its user groups is called a"):
            await update_manager(w.store, second.manager_id, ManagerUpdate(name="a"))
        await update_manager(w.store, first.manager_id, ManagerUpdate(name="a"))
        assert [one.name for one in (await list_managers(w.store, w.user_id)).items] == ["a", "b"]


async def test_two_hosts_cannot_take_one_name_at_once(database: str) -> None:
    async with world(database) as w, held(database) as other:
        first, second = await w.host(), await w.host()
        await update_manager(w.on(other).store, first.manager_id, ManagerUpdate(name="a"))
        rename = update_manager(w.store, second.manager_id, ManagerUpdate(name="a"))
        renaming = asyncio.create_task(rename)
        await until_blocked(w)
        await other.commit()
        with pytest.raises(AlreadyExists):
            await renaming


async def test_a_retagged_host_is_matched_at_the_next_refresh(database: str) -> None:
    async with world(database) as w:
        group = await w.group(tags={"gpu"})
        await w.submit(group, 1)
        host = await w.host(tags=["cpu"])
        await assign_round(w.store)
        assert (await observe_manager(w.store, host.manager_id)).lease is None
        await update_manager(w.store, host.manager_id, ManagerUpdate(tags=frozenset({"gpu"})))
        refreshed = await refresh_managers(w.store, group)
        assert refreshed.added_managers == [host.manager_id]
        await assign_round(w.store)
        await host.take(group)
        assert len((await host.claim()).tasks) == 1


async def test_a_host_with_a_lease_or_a_teardown_is_not_deleted(database: str) -> None:
    async with world(database) as w:
        group = await w.group("render")
        await w.submit(group, 1)
        host = await w.leased_host(group)
        with pytest.raises(Conflict, match="has a lease for render; drain it first") as refused:
            await delete_manager(w.store, host.manager_id, force=True)
        assert refused.value.facts["lease"] == "render"
        await drain_manager(w.store, host.manager_id, now=True)
        await host.renew()
        await release_over(w.store, host.manager_id, host.epoch)
        with pytest.raises(Conflict, match="has to clean up after render; drain it first"):
            await delete_manager(w.store, host.manager_id, force=True)
        await host.clean(group)
        await delete_manager(w.store, host.manager_id)
        assert await token_version(w.store, host.manager_id) is None, "its token is refused"
        for gone in (get_manager, delete_manager, drain_manager):
            with pytest.raises(NotFound):
                await gone(w.store, host.manager_id)
        with pytest.raises(NotFound):
            await host.hello()
        assert (await list_managers(w.store, w.user_id)).items == []
        assert not (await observe_manager(w.store, host.manager_id)).exists
        await assign_round(w.store)
        assert await w.value("SELECT count(*) FROM leases WHERE state <> 'ended'") == 0


async def test_a_machine_that_is_gone_is_forgotten_by_force(database: str) -> None:
    async with world(database) as w:
        group = await w.group("render")
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await say_goodbye(w.store, host.manager_id, host.epoch)
        with pytest.raises(Conflict, match="start its agent, or if the machine no longer exists"):
            await delete_manager(w.store, host.manager_id)
        await delete_manager(w.store, host.manager_id, force=True)
        await w.close(group)
        await w.control.finalize(group)
        view = await w.control.settle(group)
        assert (view.settled, view.result) == (True, "teardown_degraded")


async def test_results_name_a_deleted_host(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await say_goodbye(w.store, host.manager_id, host.epoch)
        await delete_manager(w.store, host.manager_id, force=True)
        rows = await w.rows(
            "SELECT m.name FROM task_result AS r JOIN managers AS m ON m.id = r.manager_id"
        )
        assert rows == [{"name": "host"}]
        spec = RegisterManager(name="host")
        await register_manager(w.store, spec, w.user_id)
