"""Task groups of the kind service through their workflow, with a process of a worker service, by effect."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from mitosis.contracts.errors import NotFound, TaskGroupClosed
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.task import TaskSubmission
from tests.support.control_plane import control_plane
from tests.support.service_processes import TASK, Scene, scene, stopped
from tests.support.waiting import wait_until_async

WAITS = "touch up-$MITOSIS_TASK_ID; while [ ! -e go ]; do sleep 0.02; done; echo said >&2; echo 1"
TRAPS = "trap 'touch asked-$MITOSIS_TASK_ID; exit 0' TERM; touch up; while :; do sleep 0.02; done"
ONE = TaskSubmission(named_task=TASK)


@asynccontextmanager
async def controlled(database: str, temporal_server: str, folder: Path) -> AsyncIterator[Scene]:
    """A scene whose task groups have their workflows."""
    async with control_plane(database, temporal_server) as plane:
        await plane.start()
        async with scene(database, folder, await plane.control()) as it:
            yield it


async def ended(it: Scene, group: str) -> TaskGroupInfo:
    return await it.client.wait(group, until="settled", timeout=timedelta(seconds=30))


@pytest.mark.timeout(120)
async def test_a_group_is_explained_closed_reopened_completed_settled_and_deleted(
    database: str, temporal_server: str, tmp_path: Path
) -> None:
    async with controlled(database, temporal_server, tmp_path) as it:
        await it.client.submit("work", [ONE])
        explained = await it.client.explain("work")
        assert TASK in explained.model_dump_json()
        worker = await it.start_ours(WAITS, "w-1", "--slots", "1")
        try:
            await wait_until_async(it.running, interval=0.05, on_timeout=it.log)
            await it.client.close_group("work")
            with pytest.raises(TaskGroupClosed):
                await it.client.submit("work", [ONE])
            await it.client.reopen("work")
            await it.client.submit("work", [ONE])
            (tmp_path / "go").touch()
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            await it.client.complete("work")
            info = await ended(it, "work")
            assert (info.state, info.settled) == (TaskGroupState.COMPLETE, True)
            assert (info.tasks_succeeded, info.tasks_total) == (2, 2)
            seen = [event.kind async for event in it.client.events("work")]
            assert (seen.count("result"), seen[-1]) == (2, "end")
            for one in await it.tasks():
                assert (one.detail or {})["stderr"] == "said\n"
            await it.client.delete_group("work")
            with pytest.raises(NotFound):
                await it.client.group("work")
        finally:
            await stopped(worker)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("verb", ["cancel", "complete --force", "delete --force"])
async def test_a_group_that_is_ended_stops_what_runs_with_its_grace(
    database: str, temporal_server: str, tmp_path: Path, verb: str
) -> None:
    async with controlled(database, temporal_server, tmp_path) as it:
        await it.client.submit("work", [ONE, ONE])
        worker = await it.start_ours(TRAPS, "w-1", "--slots", "1")
        try:
            await wait_until_async((tmp_path / "up").exists, on_timeout=it.log)
            grace = timedelta(seconds=20)
            if verb == "cancel":
                await it.client.cancel("work", grace=grace)
            elif verb == "complete --force":
                await it.client.complete("work", force=True, grace=grace)
            else:
                await it.client.delete_group("work", force=True, grace=grace)
            if verb == "delete --force":
                await wait_until_async(lambda: _gone(it), on_timeout=it.log)
            else:
                info = await ended(it, "work")
                assert (info.settled, info.tasks_cancelled) == (True, 2)
                assert {one.state for one in await it.tasks()} == {"cancelled"}
            await wait_until_async(lambda: _asked(tmp_path) == 1, on_timeout=it.log)
        finally:
            await stopped(worker)


def _asked(folder: Path) -> int:
    """How many tasks were asked to end."""
    return len([*folder.glob("asked-*")])


async def _gone(it: Scene) -> bool:
    try:
        await it.client.group("work")
    except NotFound:
        return True
    return False


@pytest.mark.timeout(120)
async def test_a_group_closes_by_itself_and_failed_tasks_are_retried_into_another(
    database: str, temporal_server: str, tmp_path: Path
) -> None:
    async with controlled(database, temporal_server, tmp_path) as it:
        soon = timedelta(seconds=1)
        spec = TaskGroupSpec(name="short", kind="service", auto_close_timeout=soon)
        await it.client.create_group(spec)
        await it.client.submit("short", [ONE])
        worker = await it.start_ours("if [ -e repaired ]; then echo 1; else exit 7; fi")
        try:
            info = await ended(it, "short")
            assert (info.state, info.tasks_failed) == (TaskGroupState.COMPLETE, 1)
            (tmp_path / "repaired").touch()
            retried = await it.client.retry("short", into="work")
            assert len(retried.task_ids) == 1
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            (one,) = await it.tasks()
            assert (one.state, one.worker_id) == ("succeeded", "w-1")
        finally:
            await stopped(worker)
