"""Deleting task groups: gone at once, deleted in chunks, remembered by hosts that owe something (P8)."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from uuid import UUID

import pytest
from psycopg.sql import SQL, Identifier

from mitosis.contracts.control import Close, Complete, ReleaseReason, ReleaseRequest, Reopen
from mitosis.contracts.errors import (
    Conflict,
    InvalidTransition,
    NotFound,
)
from mitosis.contracts.http import RetryBody, TaskGroupUpdate
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.wire import LeaseStanding
from mitosis.store.groups.definition import find_group, update_group
from mitosis.store.groups.deletion import delete_chunk, delete_group
from mitosis.store.groups.events import group_events
from mitosis.store.groups.explain import explain_group
from mitosis.store.groups.views import cancel_stats, list_groups, observe_group, read_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.environments import get_environment
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import get_manager, observe_manager
from mitosis.store.tasks.results import wait_for_results
from mitosis.store.tasks.retry import retry_tasks
from mitosis.store.tasks.views import list_tasks, read_task, read_tasks
from mitosis.store.users.accounts import role_in_task_group
from tests.support.aging import delete_expired, time_passes
from tests.support.campaigns import (
    CALLS,
    Host,
    World,
    failed,
    held,
    succeeded,
    until_blocked,
    world,
)

ROWS = ("task", "open_task", "task_result", "task_failures", "submission", "task_retries")
RETRY = RetryBody(idempotency_key="again", limit=1000)


async def ended(w: World, name: str = "campaign", tasks: int = 5, **spec: object) -> UUID:
    """A settled group in which two tasks have failed, and every task once before."""
    group = await w.group(name, **spec)
    await w.submit(group, tasks, idempotency_key="k")
    host = await w.leased_host(group)
    claimed = (await host.claim()).tasks
    await host.report(*map(succeeded, claimed[2:]), *(failed(task) for task in claimed[:2]))
    await w.close(group)
    await w.control.finalize(group)
    await released(host)
    await host.clean(group)
    assert (await w.control.settle(group)).settled
    await w.rows(
        "INSERT INTO task_failures (task_id, group_id, attempt, kind)"
        " SELECT t.id, t.group_id, 0, 'exit_code' FROM task AS t"
        " WHERE t.group_id = (SELECT max(id) FROM task_groups)"
    )
    return group


async def released(host: Host, reason: ReleaseReason = ReleaseReason.GROUP_ENDED) -> None:
    await release_lease(
        host.world.store,
        ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=reason),
    )


async def lost(w: World, host: Host) -> None:
    await w.rows("UPDATE leases SET alive_until = now() WHERE state <> 'ended'")
    await released(host, ReleaseReason.LOST)


async def owing(w: World, name: str = "campaign") -> tuple[Host, UUID]:
    """A lost host that owes the teardown of a settled group, with a task still running."""
    hook = {"command": ["clean", name], "timeout": "1m"}
    group = await w.group(name, environment_teardown_hook=hook, cancel_grace_seconds=7)
    await w.submit(group, 1)
    host = await w.leased_host(group)
    await host.renew(started=(await host.claim()).tasks)
    await w.cancel(group)
    await lost(w, host)
    await w.control.discard(group)
    assert (await w.control.settle(group)).settled
    return host, group


async def left(w: World) -> dict[str, int]:
    counting = SQL("SELECT count(*) FROM {}")
    return {table: await w.value(counting.format(Identifier(table))) for table in ROWS}


async def finish(w: World, limit: int = 100) -> int:
    """Delete all that is to be deleted; return in how many chunks."""
    return await w.delete_rows(limit)


@pytest.mark.spec("S002-260")
async def test_every_reader_finds_it_gone_before_a_row_is_deleted(database: str) -> None:
    async with world(database) as w:
        group = await ended(w)
        number, task = (await w.rows("SELECT group_id, id FROM task LIMIT 1"))[0].values()
        other = await w.group("other")
        await delete_group(w.store, group)
        assert (await left(w))["task"] == 5
        store, one = w.store, task_uuid(number, task)

        async def page() -> object:
            """Of a reader that has read the ids before: it must not take a part for the whole."""
            async with w.database.connection() as connection:
                return await read_tasks(connection, number, [task])

        readers: list[Callable[[], Awaitable[object]]] = [
            page,
            lambda: read_group(store, group),
            lambda: find_group(store, "alice/campaign"),
            lambda: wait_for_results(store, group),
            lambda: list_tasks(store, group),
            lambda: read_task(store, one),
            lambda: anext(group_events(store, group)),
            lambda: cancel_stats(store, group),
            lambda: explain_group(store, group),
            lambda: role_in_task_group(store, w.user_id, group),
            lambda: delete_group(store, group),
            lambda: update_group(store, group, TaskGroupUpdate(priority=3)),
            lambda: retry_tasks(store, group, other, RETRY),
            lambda: retry_tasks(store, group, group, RETRY),
            lambda: retry_tasks(store, other, group, RETRY),
            lambda: w.submit(group),
            lambda: w.apply(group, Reopen()),
            lambda: w.apply(group, Close()),
            lambda: w.apply(group, Complete()),
            lambda: w.cancel(group),
        ]
        for read in readers:
            with pytest.raises(NotFound):
                await read()
        assert [item.name for item in (await list_groups(store, w.user_id)).items] == ["other"]
        assert not (await observe_group(store, group)).exists
        assert await w.value("SELECT count(*) FROM open_task") == 0, "nothing was submitted again"
        assert await w.group("campaign") != group, "its name is free at once"


async def test_its_rows_go_in_chunks_and_an_interrupted_chunk_is_repeated(database: str) -> None:
    async with world(database) as w:
        group, other = await ended(w), await ended(w, "other")
        into = await w.group("into")
        await retry_tasks(w.store, other, into, RETRY)
        before = await left(w)
        await delete_group(w.store, group)
        async with held(database) as open_one:
            assert await delete_chunk(w.on(open_one).store, 2)
            await open_one.held.rollback()  # as by the death of the process
        assert await left(w) == before
        assert await finish(w, 2) >= 3 * 3
        after = await left(w)
        assert after["task"] == before["task"] - 5
        assert after["task_result"] == after["task_failures"] == 5
        rest = await w.rows(
            "SELECT group_id FROM task_result UNION SELECT group_id FROM task_failures"
        )
        assert len(rest) == 1
        assert (await wait_for_results(w.store, other)).finished
        assert after["submission"] == before["submission"] - 1
        assert after["task_retries"] == 2
        await w.cancel(into)
        await w.control.discard(into)
        await w.control.settle(into)
        await delete_group(w.store, into)
        again = await w.group("again")
        first = await retry_tasks(w.store, other, again, RETRY)
        assert len(first.task_ids) == 2, "a retry into a deleted group is no retry any more"
        await finish(w)
        assert (await left(w))["task_retries"] == 2, "which replaced the rows of the first"
        assert await w.value("SELECT count(*) FROM deleted_groups WHERE finished_at IS NULL") == 0


async def test_each_chunk_is_small_and_two_processes_share_the_work(database: str) -> None:
    async with world(database) as w:
        group, other = await ended(w, tasks=9), await ended(w, "other", tasks=9)
        await delete_group(w.store, group)
        await delete_group(w.store, other)
        async with held(database) as open_one:
            assert await delete_chunk(w.on(open_one).store, 2)
            assert await delete_chunk(w.store, 2)
            await open_one.commit()
        places = await w.rows("SELECT step, position > 0 AS begun FROM deleted_groups")
        assert places == [{"step": 0, "begun": True}] * 2
        counts = [await left(w)]
        while await delete_chunk(w.store, 2):
            counts.append(await left(w))
            assert len(counts) < CALLS, "rows remain, or chunks have no end"
        assert set(counts[-1].values()) == {0}
        for one, following in pairwise(counts):
            assert all(one[table] - following[table] <= 2 for table in ROWS)


async def test_a_retry_that_has_begun_is_waited_for(database: str) -> None:
    """It would otherwise answer that it has submitted everything, with a part of the tasks."""
    async with world(database) as w, held(database) as open_one:
        group, into = await ended(w), await w.group("into")
        await retry_tasks(w.on(open_one).store, group, into, RETRY)
        deleting = asyncio.ensure_future(delete_group(w.store, group))
        await until_blocked(w)
        await open_one.commit()
        await deleting
        await finish(w)
        assert await w.value("SELECT count(*) FROM open_task") == 2


async def test_an_offer_keeps_a_group_from_settling(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.host()
        await w.cancel(group)
        await w.rows(
            "INSERT INTO leases (group_id, manager_id) SELECT g.id, m.id FROM task_groups AS g, managers AS m"
        )
        assert not (await w.control.settle(group)).settled
        await w.rows("UPDATE leases SET state = 'ended', ended_at = now()")
        assert (await w.control.settle(group)).settled


async def test_only_a_settled_group_is_deleted(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        with pytest.raises(Conflict):
            await delete_group(w.store, group)
        host = await w.leased_host(group)
        await w.cancel(group)
        await w.control.discard(group)
        with pytest.raises(Conflict):
            await delete_group(w.store, group)
        await released(host)
        assert await finish(w) == 0
        assert (await read_group(w.store, group)).tasks_total == 1


@pytest.mark.spec("S000-139")
async def test_what_a_host_owes_outlives_the_group_with_all_it_needs(database: str) -> None:
    async with world(database) as w:
        host, group = await owing(w)
        await w.pokes()
        await delete_group(w.store, group)
        await finish(w)
        answer = await host.renew()
        assert answer.standing is LeaseStanding.GONE
        assert answer.order is not None
        assert (answer.order.kill, answer.order.grace_seconds) == (True, 7), "its own grace"
        assert (await host.hello()).owed == (group,)
        grant = await get_environment(w.store, host.manager_id, group)
        assert grant.environment_teardown_hook is not None
        assert grant.environment_teardown_hook.command == ("clean", "campaign")
        assert (grant.task_group_name, grant.group_name, grant.worker_count) == (
            "campaign",
            "alice",
            1,
        )
        shown = (await get_manager(w.store, host.manager_id)).environments
        assert shown == {"campaign (deleted)": "owed"}
        following = await w.group("campaign")
        await w.submit(following, 1)
        assert (await assign_round(w.store)).offered == 0, "nothing before the teardown"
        await host.environment(group, "tear_down")
        assert (await assign_round(w.store)).offered == 0
        view = await observe_manager(w.store, host.manager_id)
        assert [(e.state, e.cleanable) for e in view.environments] == [("tearing_down", True)]
        assert await host.environment(group, "cleaned") == "gone"
        assert await host.environment(group, "cleaned") == "gone", "again is success"
        assert ("task_group", group) not in await w.pokes(), "no workflow of a deleted group"
        assert (await assign_round(w.store)).offered == 1
        await host.take(following)


async def test_an_environment_of_an_older_version_keeps_what_it_needs_too(database: str) -> None:
    async with world(database) as w:
        host, group = await owing(w)
        await w.rows(
            "UPDATE environments SET task_group_uuid = NULL, task_group_name = NULL, group_name = NULL,"
            " worker_count = NULL, teardown_hook = NULL"
        )
        before = await get_environment(w.store, host.manager_id, group)
        assert (await host.hello()).owed == (group,)
        await delete_group(w.store, group)
        assert await get_environment(w.store, host.manager_id, group) == before
        assert (await host.hello()).owed == (group,)


async def test_no_setup_begins_before_an_owed_teardown(database: str) -> None:
    async with world(database) as w:
        host, group = await owing(w)
        await delete_group(w.store, group)
        await host.hello()
        following = await w.group("following")
        await w.submit(following, 1)
        await w.rows(
            "INSERT INTO leases (group_id, manager_id) SELECT g.id, m.id FROM task_groups AS g, managers AS m"
        )
        await host.take(following, prepare=False)
        for _ in ("owed", "tearing_down"):
            with pytest.raises(InvalidTransition):
                await host.prepare(following)
            await host.environment(group, "tear_down")
        await host.environment(group, "cleaned")
        await host.prepare(following)


async def test_bookkeeping_goes_when_it_is_old_and_nothing_is_owed(database: str) -> None:
    async with world(database) as w:
        host, group = await owing(w)
        await delete_group(w.store, group)
        await finish(w)
        await time_passes(w, 31)
        await delete_expired(w)
        assert (await host.hello()).owed == (group,), "after any time"
        await host.clean(group)
        await time_passes(w, 31)
        for _ in range(2):
            await delete_expired(w)
        kept = await w.value(
            "SELECT (SELECT count(*) FROM environments) + (SELECT count(*) FROM leases)"
            " + (SELECT count(*) FROM hook_runs) + (SELECT count(*) FROM deleted_groups)"
        )
        assert kept == 0
