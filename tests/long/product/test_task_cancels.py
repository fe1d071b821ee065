"""Single tasks are cancelled while real agents run them: their processes end, all others go on."""

from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.task import TaskSubmission
from tests.support.fleet import Diary, Fleet, diary, it, shared_fleet
from tests.support.processes import living, with_pids

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


def stubborn(folder: Path) -> TaskSubmission:
    """Ignores SIGTERM, with a child that does too; both write their pids."""
    inner = f"trap '' TERM; echo $$ >> {folder}/pids; sleep 600 & wait"
    script = (
        f"trap '' TERM; echo $$ >> {folder}/pids; echo begun; sh -c \"{inner}\" & wait; sleep 600"
    )
    return TaskSubmission(command=["/bin/sh", "-c", script])


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def begun(it: Fleet, folder: Path) -> list[psutil.Process]:
    await it.until(lambda: len(pids(folder)) == 2)
    return with_pids(pids(folder))


@pytest.mark.spec("S000-50", "C-10")
async def test_a_running_task_is_stopped_with_its_grace_and_its_neighbours_go_on(
    it: Fleet, diary: Diary
) -> None:
    await it.host()
    group = await it.group(stubborn(diary.folder), diary.task("neighbour", wait=True), workers=2)
    processes = await begun(it, diary.folder)
    await it.until(lambda: diary.began("neighbour"))
    waiting = await it.client.submit(group, [diary.task("unclaimed")] * 5)
    (first, *_) = [task async for task in it.client.tasks(group)]
    done = await it.client.cancel_tasks(
        group, [first.task_id, *waiting], grace=timedelta(seconds=0.5), reason="not needed"
    )
    assert done.cancelled + done.stopping == 6
    assert (await it.client.task(first.task_uuid)).state is TaskState.CANCELLED, "at once"
    await it.until(lambda: not living(processes))
    assert diary.ended("neighbour") == 0
    diary.go("neighbour")
    info = await it.settled(group)
    assert (info.tasks_succeeded, info.tasks_cancelled) == (1, 6)
    assert diary.began("unclaimed") == 0
    stopped = await it.client.task(first.task_uuid)
    assert stopped.signal == 9, "its grace was over"
    assert stopped.detail is not None
    assert stopped.detail["stdout"] == "begun\n", "what it wrote is kept"
    assert await it.rows("SELECT * FROM task_stops") == []


@pytest.mark.parametrize("cut", ["wire", "agent"])
async def test_a_task_on_a_host_that_is_away_ends_when_it_is_back(
    it: Fleet, diary: Diary, cut: str
) -> None:
    host = await it.host()
    group = await it.group(stubborn(diary.folder), diary.task("next"), workers=1)
    processes = await begun(it, diary.folder)
    (first, _) = [task async for task in it.client.tasks(group)]
    if cut == "wire":
        host.wire.cut()
    else:
        await host.kill()
    cancelled = await it.client.cancel_task(first.task_uuid, grace=timedelta())
    assert (cancelled.outcome, cancelled.state) == ("stopping", "cancelled")
    if cut == "wire":
        host.wire.mend()
    else:
        await host.start()
    await it.until(lambda: diary.ended("next"))
    assert not living(processes)
    info = await it.settled(group)
    assert (info.tasks_succeeded, info.tasks_cancelled) == (1, 1)
    assert len(pids(diary.folder)) == 2, "it never ran again"


@pytest.mark.spec("S002-177")
@pytest.mark.parametrize("killed", ["nothing", "agent"])
async def test_a_running_group_is_deleted_by_force(it: Fleet, diary: Diary, killed: str) -> None:
    host = await it.host()
    group = await it.group(
        stubborn(diary.folder), environment_teardown_hook=diary.hook("teardown"), workers=1
    )
    processes = await begun(it, diary.folder)
    info = await it.client.delete_group(group, force=True, grace=timedelta(seconds=0.5))
    assert info is not None
    assert (info.deleting, info.state) == (True, "cancelled")
    if killed == "agent":
        await host.kill()
        await host.start()

    async def gone() -> bool:
        return await it.rows("SELECT 1 FROM task_groups") == []

    await it.until(gone)
    await it.until(lambda: diary.ended("teardown") == 1)
    assert not living(processes)
    following = await it.group(diary.task("next"), workers=1)
    assert (await it.settled(following)).tasks_succeeded == 1
