"""Hosts as lists and readers show them: pages by name, and one state at every step of a life."""

from uuid import UUID

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import RegisterManager
from mitosis.contracts.lifecycle import ManagerState
from mitosis.store.groups.explain import explain_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.registration import register_manager
from mitosis.store.managers.views import get_manager, list_managers, observe_manager
from mitosis.store.pg.paging import encode_cursor
from mitosis.store.users.accounts import add_member, create_user, ensure_admin
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


async def test_lists_are_pages_of_the_hosts_of_the_own_groups(database: str) -> None:
    async with world(database) as w:
        hosts = [
            (await register_manager(w.store, RegisterManager(name=name), w.user_id))[0]
            for name in ("b", "a", "c", "a")
        ]
        by_name = [hosts[i] for i in (1, 3, 0, 2)]
        bob = await create_user(w.store, "bob")
        admin = await ensure_admin(w.store, "admin")
        page = await list_managers(w.store, w.user_id, limit=2)
        assert [item.manager_id for item in page.items] == by_name[:2]
        again = await list_managers(w.store, w.user_id, limit=1)
        second = await list_managers(w.store, w.user_id, after=again.next, limit=1)
        assert second.items == page.items[1:], "the same name, a later number"
        rest = await list_managers(w.store, w.user_id, after=page.next, limit=2)
        assert ([item.manager_id for item in rest.items], rest.next) == (by_name[2:], None)
        assert [item.groups for item in rest.items] == [["alice"], ["alice"]]
        assert {item.state for item in rest.items} == {ManagerState.OFFLINE}
        assert (await list_managers(w.store, bob.user_id)).items == []
        assert len((await list_managers(w.store, admin.user_id)).items) == 4
        await add_member(w.store, "alice", "bob", "read")
        assert len((await list_managers(w.store, bob.user_id)).items) == 4
        for after in ("x", encode_cursor("managers", "b"), encode_cursor("groups", "b", 1)):
            with pytest.raises(InvalidRequest):
                await list_managers(w.store, w.user_id, after=after)
        with pytest.raises(InvalidRequest):
            await list_managers(w.store, w.user_id, limit=501)


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
