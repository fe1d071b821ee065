"""Lists of worker services, and the coverage of named tasks."""

import pytest

from mitosis.contracts.errors import InvalidRequest, WorkerNotFound
from mitosis.store.registry.views import Coverage, get_worker, list_named_tasks, list_workers
from mitosis.store.services.contact import drain_worker
from mitosis.store.users.accounts import add_member, create_user, ensure_admin
from tests.support.campaigns import World, world
from tests.support.worker_services import healthy, registered, task


async def coverage(w: World, available: Coverage = "any") -> dict[str, list[str]]:
    """Worker ids by name, read page by page; each page holds two."""
    found, after = {}, None
    while True:
        page = await list_named_tasks(w.store, w.user_id, available=available, after=after, limit=2)
        for one in page.items:
            assert one.available == len(one.worker_ids)
            found[one.name] = one.worker_ids
        if (after := page.next) is None:
            return found


@pytest.mark.spec("C-21", "S004-53", "S004-55")
async def test_coverage_counts_the_services_that_can_execute_a_task_now(database: str) -> None:
    async with world(database) as w:
        a, b, c = map(task, "abc")
        await healthy(w, "w-2", a, b, c)
        late = await healthy(w, "W-1", a, b)
        drained = await healthy(w, "w-10", a)
        await registered(w, "w-3", a, task("d"))
        assert await coverage(w) == {
            "a": ["W-1", "w-10", "w-2"],
            "b": ["W-1", "w-2"],
            "c": ["w-2"],
            "d": [],
        }
        assert await coverage(w, "one") == {"c": ["w-2"]}
        assert await coverage(w, "none") == {"d": []}
        await drain_worker(w.store, drained.made.worker_uuid)
        await late.ago(120)
        assert await coverage(w, "one") == {"a": ["w-2"], "b": ["w-2"], "c": ["w-2"]}
        await healthy(w, "w-2", b)
        assert set(await coverage(w, "none")) == {"a", "c", "d"}
        page = await list_named_tasks(w.store, w.user_id, limit=1)
        assert (page.items[0].supporting, page.items[0].group_name) == (3, "alice")


async def test_lists_are_pages_of_the_services_of_the_own_groups(database: str) -> None:
    async with world(database) as w:
        bob = await create_user(w.store, "bob")
        admin = await ensure_admin(w.store, "admin")
        for worker_id in ("b", "a", "c"):
            await registered(w, worker_id)
        first = await list_workers(w.store, w.user_id, limit=2)
        rest = await list_workers(w.store, w.user_id, limit=2, after=first.next)
        assert [one.worker_id for one in (*first.items, *rest.items)] == ["a", "b", "c"]
        assert ([one.task_count for one in rest.items], rest.next) == ([1], None)
        assert (await list_workers(w.store, bob.user_id)).items == []
        assert (await list_named_tasks(w.store, bob.user_id)).items == []
        with pytest.raises(WorkerNotFound):
            await get_worker(w.store, bob.user_id, "a")
        assert len((await list_workers(w.store, admin.user_id)).items) == 3
        await add_member(w.store, "alice", "bob", "read")
        assert len((await list_workers(w.store, bob.user_id)).items) == 3
        for cursor in ("rubbish", first.next):
            with pytest.raises(InvalidRequest):
                await list_named_tasks(w.store, w.user_id, after=cursor)
