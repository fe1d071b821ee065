"""A running task group is deleted by force: cancelled, cleaned, then gone; whatever ends in between."""

import pytest

from mitosis.contracts.control import Cancel, ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import Conflict, NotFound
from mitosis.store.groups.definition import find_group
from mitosis.store.groups.deletion import delete_chunk, delete_group
from mitosis.store.groups.views import read_group
from mitosis.store.managers.release import release_lease, release_over
from tests.support.campaigns import world

FORCED = Cancel(reason="not needed", grace_seconds=4.0)


async def test_a_running_group_is_cancelled_cleaned_and_then_deleted(database: str) -> None:
    async with world(database) as w:
        group = await w.group("render")
        await w.submit(group, 3)
        host = await w.leased_host(group)
        tasks = (await host.claim(1)).tasks
        with pytest.raises(Conflict, match="mitosis group delete --force"):
            await delete_group(w.store, group)
        assert not await delete_group(w.store, group, FORCED)
        shown = await read_group(w.store, group)
        assert (shown.state, shown.deleting, shown.reason) == ("cancelled", True, "not needed")
        assert await find_group(w.store, "alice/render") == group, "its name is still taken"
        order = (await host.renew()).order
        assert order is not None
        assert (order.kill, order.grace_seconds) == (True, 4.0)
        assert not await delete_group(w.store, group, FORCED), "again"
        await w.control.discard(group)
        await host.finish(tasks)
        await release_over(w.store, host.manager_id, host.epoch)
        assert not (await w.control.settle(group)).settled, "the host is not clean"
        await host.clean(group)
        view = await w.control.settle(group)
        assert (view.settled, view.result) == (True, "cancelled"), "for the result of its workflow"
        for gone in (read_group(w.store, group), delete_group(w.store, group, FORCED)):
            with pytest.raises(NotFound):
                await gone
        assert not (await w.control.observe_task_group(group)).exists
        assert await w.group("render") != group, "its name is free"
        await w.delete_rows()
        assert await w.value("SELECT count(*) FROM task") == 0


async def test_a_closed_group_without_tasks_goes_the_same_way(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.close(group)
        await w.control.finalize(group)
        await w.pokes()
        assert not await delete_group(w.store, group, FORCED)
        assert ("task_group", group) in await w.pokes()
        assert (await read_group(w.store, group)).state == "complete", "it has ended already"
        assert (await w.control.settle(group)).result == "success"
        assert not (await w.control.observe_task_group(group)).exists


async def test_a_settled_group_is_gone_at_once(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.cancel(group)
        await w.control.settle(group)
        assert await delete_group(w.store, group, FORCED)
        with pytest.raises(NotFound):
            await read_group(w.store, group)


async def test_a_host_that_is_lost_in_between_keeps_its_debt(database: str) -> None:
    async with world(database) as w:
        group = await w.group("render")
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.claim()
        assert not await delete_group(w.store, group, FORCED)
        await w.rows("UPDATE leases SET alive_until = now() - interval '1 s'")
        lost = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
        )
        await release_lease(w.store, lost)
        await w.control.discard(group)
        await w.control.settle(group)
        with pytest.raises(NotFound):
            await read_group(w.store, group)
        assert (await host.hello()).owed == (group,), "of a group that is gone"
        await host.clean(group)
        assert (await host.hello()).owed == ()


async def test_a_group_that_was_settled_without_being_deleted_is_found(database: str) -> None:
    """As by a control worker of the version before."""
    async with world(database) as w:
        group = await w.group()
        await w.cancel(group)
        await w.control.settle(group)
        await w.rows("UPDATE group_live SET delete_when_settled = true")
        assert await delete_chunk(w.store, 100)
        with pytest.raises(NotFound):
            await read_group(w.store, group)
