"""A host is drained, cleaned and deleted while a real agent works on it."""

import asyncio
from datetime import timedelta

import pytest

from manager_agent.process import EXIT_DO_NOT_RESTART
from mitosis.contracts.errors import Conflict
from tests.support.fleet import Diary, Fleet, diary, it, shared_fleet

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.spec("C-07")
@pytest.mark.parametrize("now", [False, True])
async def test_a_drained_host_ends_its_task_cleans_up_and_can_be_deleted(
    it: Fleet, diary: Diary, now: bool
) -> None:
    host = await it.host()
    names = [f"t{n}" for n in range(4)]
    group = await it.group(
        *[diary.task(name, wait=True) for name in names],
        workers=1,
        environment_setup_hook=diary.hook("setup"),
        environment_teardown_hook=diary.hook("teardown"),
    )
    await it.until(lambda: diary.began("t0"))
    with pytest.raises(Conflict, match="drain it first"):
        await it.client.delete_manager(host.manager_id)
    drained = await it.client.drain_manager(host.manager_id, now=now)
    assert (drained.state, drained.drain is not None) == ("draining", True)
    waiting = asyncio.create_task(it.client.wait_until_empty(host.manager_id))
    assert diary.ended("t0") == 0
    diary.go(*names)
    info = await asyncio.wait_for(waiting, 60)
    assert (info.drain is not None and info.drain.empty, info.state) == (True, "draining")
    assert (diary.ended("t0"), diary.ended("teardown")) == (1, 1)
    began = sum(diary.began(name) for name in names)
    assert began < 4 if now else began <= 2, "it took nothing new"
    counts = await it.client.group(group)
    assert counts.tasks_unfinished == 4 - began
    if now:
        await it.client.resume_manager(host.manager_id)
        await it.until(lambda: all(diary.ended(name) for name in names))
        assert diary.ended("setup") == 2
        await it.settled(group)
        return
    await it.client.delete_manager(host.manager_id)
    assert await host.ended() == EXIT_DO_NOT_RESTART, "its token is refused"
    other = await it.host()
    info_of_group = await it.settled(group)
    assert info_of_group.tasks_succeeded == 4
    tasks = [task async for task in it.client.tasks(group)]
    assert {task.manager_name for task in tasks} == {"host-1", "host-2"}
    await it.client.drain_manager(other.manager_id)
    empty = await it.client.wait_until_empty(other.manager_id, timeout=timedelta(seconds=30))
    assert empty.drain is not None
    assert empty.drain.empty


async def test_a_host_is_drained_during_its_setup(it: Fleet, diary: Diary) -> None:
    host = await it.host()
    await it.group(
        diary.task("task"),
        environment_setup_hook=diary.hook("setup", wait=True),
        environment_teardown_hook=diary.hook("teardown"),
    )
    await it.until(lambda: diary.began("setup"))
    await it.client.drain_manager(host.manager_id)
    diary.go("setup")
    info = await it.client.wait_until_empty(host.manager_id, timeout=timedelta(seconds=60))
    assert info.drain is not None
    assert info.drain.empty, info.drain.waits_for
    assert (diary.ended("teardown"), diary.began("task")) == (1, 0)
