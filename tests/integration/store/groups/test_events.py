"""Waiting for changes of a group: one long poll, and the stream of its events."""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mitosis.store.groups import events
from mitosis.store.groups.events import group_events, wait_for_group
from mitosis.store.groups.views import NumberedInfo, read_group
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store
from tests.support.campaigns import World, world
from tests.support.waiting import wait_until_async


async def test_a_watcher_is_woken_by_changes_and_by_the_end(database: str) -> None:
    async with world(database, pool_size=3) as w:
        group = await w.group()
        first = await wait_for_group(w.store, group, "changed", timedelta(0))
        assert first.tasks_total == 0
        changed = asyncio.create_task(
            wait_for_group(w.store, group, "changed", timedelta(seconds=20))
        )
        settled = asyncio.create_task(
            wait_for_group(w.store, group, "settled", timedelta(seconds=20))
        )
        complete = asyncio.create_task(
            wait_for_group(w.store, group, "complete", timedelta(seconds=20))
        )
        await wait_until_async(lambda: w.value("SELECT watched FROM group_live"))
        await w.submit(group, 1)
        assert (await changed).tasks_total == 1
        await w.cancel(group)
        assert (await complete).state == "cancelled"
        await w.control.discard(group)
        assert not settled.done()
        await w.control.settle(group)
        assert (await settled).settled


async def test_a_follower_sees_changes_and_a_snapshot_of_a_quiet_group_now_and_then(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(database) as w:
        group = await w.group()
        number = (await read_group(w.store, group)).number
        monkeypatch.setattr(events, "REFRESH_SECONDS", 30.0)
        async with aclosing(group_events(w.store, group)) as stream:
            assert [(await anext(stream)).kind for _ in range(2)] == ["state", "group"]
            following = asyncio.ensure_future(anext(stream))
            await wait_until_async(lambda: _watched(w))
            for _ in range(5):
                w.store.listening.wake(number, Topic.CHANGED)
                await asyncio.sleep(0.1)
            assert not following.done(), "it was woken, and nothing has changed"
            await w.submit(group, 1)
            event = await following
            assert (event.kind, event.group and event.group.tasks_total) == ("group", 1)
            monkeypatch.setattr(events, "REFRESH_SECONDS", 0.2)
            again = await asyncio.wait_for(anext(stream), 20)
            assert again.group == event.group


async def test_a_follower_looks_at_a_limited_rate_however_often_it_is_woken(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def counted(store: Store, task_group_id: UUID) -> NumberedInfo:
        nonlocal looks
        looks += 1
        return await read_group(store, task_group_id)

    async def follow(stream: Any) -> None:
        async for _ in stream:
            pass

    async with world(database) as w:
        group = await w.group()
        number = (await read_group(w.store, group)).number
        monkeypatch.setattr(events, "read_group", counted)
        following = asyncio.create_task(follow(group_events(w.store, group)))
        await wait_until_async(lambda: _watched(w))
        begun = asyncio.get_running_loop().time()
        looks = 0
        while (seconds := asyncio.get_running_loop().time() - begun) < 1.0:
            w.store.listening.wake(number, Topic.CHANGED)
            await asyncio.sleep(0.005)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        assert 2 <= looks <= 2 * seconds / events.PACE_SECONDS + 2


async def _watched(w: World) -> Any:
    return await w.value("SELECT watched FROM group_live")
