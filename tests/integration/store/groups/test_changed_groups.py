"""A task group is changed while it runs, and each change has its effect."""

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.errors import Conflict, InvalidRequest, TaskGroupClosed
from mitosis.contracts.http import TaskGroupUpdate
from mitosis.contracts.wire import LeaseStanding
from mitosis.store.groups.assignment import refresh_managers
from mitosis.store.groups.definition import update_group
from mitosis.store.groups.views import read_group
from mitosis.store.leases.granting import get_grant
from mitosis.store.leases.scheduler import assign_round
from tests.support.campaigns import Host, World, held, world

ONE_WORKER = WorkerAllocationPlan(worker_count=1)


async def working_hosts(w: World, group: object, count: int) -> list[Host]:
    """So many hosts, one after the other, each with a claimed task."""
    hosts = []
    for _ in range(count):
        host = await w.leased_host(group)  # type: ignore[arg-type]
        await host.claim(1)
        hosts.append(host)
    return hosts


async def test_a_lower_limit_ends_the_last_leases_after_their_tasks(database: str) -> None:
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=ONE_WORKER)
        await w.submit(group, 20)
        first, second, third = await working_hosts(w, group, 3)
        await update_group(w.store, group, TaskGroupUpdate(max_managers=1))
        await w.pokes()
        await assign_round(w.store)
        assert await w.pokes() >= {("manager", second.manager_id), ("manager", third.manager_id)}
        for host in (second, third):
            answer = await host.renew(returned=[])
            assert answer.standing is LeaseStanding.ENDING
            assert answer.order is not None
            assert not answer.order.kill, "its task finishes"
            assert (await host.claim()).tasks == []
            done = await host.finish(list(host.held.values()))
            assert [status.value for status in done.statuses] == ["committed"]
        assert (await first.claim(1)).tasks != []
        await assign_round(w.store)
        assert (await first.renew()).standing is LeaseStanding.ACTIVE, "the first one stays"
        assert (await read_group(w.store, group)).tasks_succeeded == 2
        await w.check()


async def test_a_lower_limit_withdraws_an_offer(database: str) -> None:
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=ONE_WORKER)
        await w.submit(group, 20)
        await working_hosts(w, group, 1)
        offered = await w.host()
        await assign_round(w.store)
        epoch = await offered.offered_epoch()
        await update_group(w.store, group, TaskGroupUpdate(max_managers=1))
        await assign_round(w.store)
        states = await w.rows("SELECT state FROM leases WHERE epoch = %s", epoch)
        assert states == [{"state": "ended"}]


async def test_an_excess_lease_that_is_locked_ends_in_the_next_round(database: str) -> None:
    async with world(database) as w, held(database) as other:
        group = await w.group(worker_allocation_plan=ONE_WORKER)
        await w.submit(group, 20)
        _, second = await working_hosts(w, group, 2)
        await update_group(w.store, group, TaskGroupUpdate(max_managers=1))
        await other.held.execute("SELECT FROM leases WHERE epoch = %s FOR UPDATE", (second.epoch,))
        answer = await assign_round(w.store)
        assert answer.next_round_in_seconds is not None
        assert answer.next_round_in_seconds <= 1, "soon, and without a poke"
        await other.commit()
        await assign_round(w.store)
        assert (await second.renew()).standing is LeaseStanding.ENDING


async def test_a_changed_priority_counts_from_the_next_round_on(database: str) -> None:
    async with world(database) as w:
        old, young = await w.group("old", priority=5), await w.group("young")
        for group in (old, young):
            await w.submit(group, 1)
        await update_group(w.store, young, TaskGroupUpdate(priority=6))
        host = await w.host()
        await assign_round(w.store)
        await host.take(young)
        assert len((await host.claim()).tasks) == 1


async def test_a_changed_plan_applies_from_the_next_lease_on(database: str) -> None:
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=ONE_WORKER)
        await w.submit(group, 20)
        host = await w.leased_host(group)
        plan = WorkerAllocationPlan(worker_count=2)
        shown = await update_group(w.store, group, TaskGroupUpdate(worker_allocation_plan=plan))
        assert shown.worker_allocation_plan.model_dump() == plan.model_dump()
        other = await w.leased_host(group)
        grant = await get_grant(w.store, other.manager_id, other.epoch)
        assert grant.worker_allocation_plan.worker_count == 2
        assert (await host.renew()).standing is LeaseStanding.ACTIVE, "its lease goes on"


async def test_a_plan_that_no_host_can_hold_is_refused(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.host()  # with two cores
        plan = WorkerAllocationPlan.model_validate(
            {"worker_count": 3, "cpu_binding": {"strategy": "exclusive"}}
        )
        with pytest.raises(InvalidRequest) as refused:
            await update_group(w.store, group, TaskGroupUpdate(worker_allocation_plan=plan))
        assert refused.value.facts["field"] == "worker_allocation_plan"
        assert (await read_group(w.store, group)).worker_allocation_plan.worker_count == 1


async def test_a_changed_grace_is_the_grace_of_the_next_cancel(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.claim()
        await update_group(w.store, group, TaskGroupUpdate(cancel_grace_seconds=77.0))
        await w.cancel(group)
        order = (await host.renew()).order
        assert order is not None
        assert (order.kill, order.grace_seconds) == (True, 77.0)
        with pytest.raises(Conflict, match="keep the grace that its end began with"):
            await update_group(w.store, group, TaskGroupUpdate(cancel_grace_seconds=99.0))


@pytest.mark.parametrize("verb", ["cancel", "complete"])
async def test_a_second_cancel_does_not_change_the_grace_and_says_so(
    database: str, verb: str
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.claim()
        end, force = (w.cancel, {}) if verb == "cancel" else (w.complete, {"force": True})
        await end(group, grace_seconds=5.0, **force)
        await end(group, grace_seconds=5.0, **force)
        await end(group, **force)
        with pytest.raises(Conflict, match="a grace of 5 s, which stays"):
            await end(group, grace_seconds=60.0, **force)
        order = (await host.renew()).order
        assert order is not None
        assert order.grace_seconds == 5.0


async def test_the_grace_of_a_forced_completion_stays(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.claim()
        await w.complete(group, force=True)
        with pytest.raises(Conflict, match="being completed by force"):
            await update_group(w.store, group, TaskGroupUpdate(cancel_grace_seconds=99.0))


@pytest.mark.spec("C-09")
async def test_whether_a_submit_reopens_can_be_changed(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        await w.close(group)
        with pytest.raises(TaskGroupClosed):
            await w.submit(group, 1)
        await update_group(w.store, group, TaskGroupUpdate(reopen_on_submit=True))
        await w.submit(group, 1)
        assert (await read_group(w.store, group)).state == "open"
        await update_group(w.store, group, TaskGroupUpdate(reopen_on_submit=False))
        await w.close(group)
        with pytest.raises(TaskGroupClosed):
            await w.submit(group, 1)


async def test_another_match_of_tags_counts_after_a_refresh(database: str) -> None:
    async with world(database) as w:
        group = await w.group(tags={"gpu", "big"})
        await w.submit(group, 1)
        host = await w.host(tags=["gpu"])
        await update_group(w.store, group, TaskGroupUpdate(tag_match="any"))
        refreshed = await refresh_managers(w.store, group)
        assert refreshed.added_managers == [host.manager_id]
        await assign_round(w.store)
        await host.take(group)
        assert len((await host.claim()).tasks) == 1
