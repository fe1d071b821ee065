"""Pages of tasks by state: every task once, in an order that an index has."""

from uuid import UUID

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.lifecycle import ListedState, TaskState
from mitosis.store.pg.paging import encode_cursor
from mitosis.store.tasks import pages
from mitosis.store.tasks.views import list_tasks
from tests.support.campaigns import World, succeeded, world


async def all_pages(w: World, group: UUID, state: TaskState | ListedState | None) -> list[int]:
    found: list[int] = []
    after = None
    while True:
        page = await list_tasks(w.store, group, state=state, after=after, limit=2)
        assert len(page.items) <= 2
        found += [task.task_id for task in page.items]
        if (after := page.next) is None:
            return found


async def test_each_state_has_its_tasks_once_whatever_lies_between(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "SCAN", 6)
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, 24)).task_ids
        host = await w.leased_host(group)
        claimed = (await host.claim(5)).tasks
        await host.renew(started=claimed[:3])
        await host.report(succeeded(claimed[3]))
        await w.rows(
            "UPDATE open_task SET state = 4, not_before = now() + make_interval(mins => 1000 - id::int / 2)"
            " WHERE id = ANY(%s)",
            ids[8:20],
        )
        await w.rows(
            "UPDATE open_task SET state = 4, not_before = now() - interval '1 s' WHERE id = %s",
            ids[21],
        )
        running = [task.task_id for task in claimed[:3]]
        unstarted = [claimed[4].task_id]
        assert await all_pages(w, group, ListedState.RUNNING) == running
        assert await all_pages(w, group, ListedState.HELD) == [*running, *unstarted]
        assert await all_pages(w, group, TaskState.SUCCEEDED) == [claimed[3].task_id]
        delayed = await all_pages(w, group, ListedState.DELAYED)
        assert delayed == sorted(ids[8:20], key=lambda one: (1000 - one // 2, one))
        ready = await all_pages(w, group, ListedState.READY)
        assert ready == [*unstarted, *ids[5:8], *ids[20:]]
        await w.rows("UPDATE open_task SET state = 2 WHERE id = ANY(%s)", ids[20:21])
        assert await all_pages(w, group, ListedState.BLOCKED) == ids[20:21]
        assert await all_pages(w, group, ListedState.READY) == [*unstarted, *ids[5:8], *ids[21:]]
        assert await all_pages(w, group, None) == ids


async def test_a_cursor_of_another_list_is_refused(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 3)
        after = (await list_tasks(w.store, group, limit=2)).next
        bad = encode_cursor(f"delayed tasks of {group}", "no time", 1)
        for cursor in (after, bad):
            with pytest.raises(InvalidRequest):
                await list_tasks(w.store, group, state=ListedState.DELAYED, after=cursor)
