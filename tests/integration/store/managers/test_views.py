"""One host, one state: the API, Temporal and `explain` show the same at every step of its life."""

from uuid import UUID

from mitosis.contracts.lifecycle import ManagerState
from mitosis.store.groups.explain import explain_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.views import get_manager, observe_manager
from tests.support.campaigns import Host, World, world


async def test_every_reader_shows_the_state_of_a_host(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        host = await w.host()
        assert await state(w, group, host) is ManagerState.IDLE
        await w.submit(group)
        await assign_round(w.store)
        assert await state(w, group, host) is ManagerState.PREPARING
        await host.take(group)
        assert await state(w, group, host) is ManagerState.EXECUTING
        await w.rows("UPDATE managers SET draining = true")
        assert await state(w, group, host) is ManagerState.DRAINING, "it still has work"
        await w.rows("UPDATE managers SET draining = false")
        await w.rows("UPDATE environments SET state = 'tearing_down'")
        assert await state(w, group, host) is ManagerState.CLEANUP, "it still has a lease"
        await w.rows("UPDATE environments SET state = 'ready'")
        await w.rows("UPDATE leases SET alive_until = now()")
        assert await state(w, group, host) is ManagerState.OFFLINE, "lost, lease not released"


async def state(w: World, group: UUID, host: Host) -> ManagerState:
    """Return the state that every reader shows."""
    explained = (await explain_group(w.store, group)).hosts
    shown = {
        (await get_manager(w.store, host.manager_id)).state,
        (await observe_manager(w.store, host.manager_id)).state,
        *(reason.state for reason in explained if reason.manager_id == host.manager_id),
    }
    assert len(explained) == 1
    (only,) = shown
    assert only is not None
    return only
