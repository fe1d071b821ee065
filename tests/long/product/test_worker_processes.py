"""Processes of worker services over the real API: ours, and one in sh and curl that needs no SDK.

Both pass the same tests, so the HTTP contract is complete.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.service_processes import Process, Scene, scene, stopped
from tests.support.waiting import wait_until_async

DOUBLE = 'sed -n \'s/.*"number":\\([0-9]*\\).*/{"twice":\\1\\1}/p\''

Start = Callable[[Scene, str], Awaitable[Process]]


async def _ours(it: Scene, command: str) -> Process:
    return await it.start_ours(command)


async def _sh(it: Scene, command: str) -> Process:
    return await it.start_sh(command)


@asynccontextmanager
async def served(it: Scene, start: Start, command: str) -> AsyncIterator[None]:
    """A worker that executes the command until the end, when it stops in order."""
    worker = await start(it, command)
    try:
        yield
    except BaseException:
        worker.kill()
        raise
    assert await stopped(worker) == 0


each = pytest.mark.parametrize("start", [_ours, _sh], ids=["ours", "sh"])


@each
@pytest.mark.spec("S002-03", "S000-56", "S002-49")
async def test_tasks_run_and_the_worker_says_goodbye(
    database: str, tmp_path: Path, start: Start
) -> None:
    async with scene(database, tmp_path) as it:
        async with served(it, start, DOUBLE):
            await it.submit(4)
            await wait_until_async(it.ended, interval=0.05, on_timeout="tasks are left")
            shown = await it.tasks()
            assert [one.state for one in shown] == ["succeeded"] * 4
            assert [(one.detail or {})["result"] for one in shown] == [
                {"twice": i * 11} for i in range(1, 5)
            ]
            assert {one.worker_id for one in shown} == {"w-1"}
        assert await it.reason_of_the_end() == "stopped"


@each
async def test_a_killed_worker_and_its_successor_give_each_task_one_result(
    database: str, tmp_path: Path, start: Start
) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(3)
        first = await start(it, "exec sleep 60")
        await wait_until_async(it.running, interval=0.05, on_timeout="nothing runs")
        first.kill()
        await first.wait()
        taken = sum(one.state == "running" for one in await it.tasks())
        async with served(it, start, DOUBLE):
            await wait_until_async(it.ended, interval=0.05, on_timeout="tasks are left")
            shown = await it.tasks()
            assert [one.state for one in shown] == ["succeeded"] * 3
            assert sorted(one.attempt for one in shown) == [1] * (3 - taken) + [2] * taken


@each
async def test_a_failed_command_and_an_unreadable_result_are_reported(
    database: str, tmp_path: Path, start: Start
) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(2)
        async with served(
            it, start, "if grep -q '\"number\":1'; then exit 3; else echo no json; fi"
        ):
            await wait_until_async(it.ended, interval=0.05, on_timeout="tasks are left")
            failed, refused = await it.tasks()
            assert (failed.state, failed.exit_code) == ("failed", 3)
            assert refused.state == "failed"
            assert refused.kind in {"result_refused", "result_not_storable"}


@each
async def test_a_command_that_writes_nothing_has_no_result(
    database: str, tmp_path: Path, start: Start
) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(1)
        async with served(it, start, "cat >/dev/null"):
            await wait_until_async(it.ended, interval=0.05, on_timeout="tasks are left")
            (one,) = await it.tasks()
            assert (one.state, (one.detail or {}).get("result")) == ("succeeded", None)


@each
async def test_a_cancelled_task_is_stopped(database: str, tmp_path: Path, start: Start) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(1)
        async with served(it, start, "exec sleep 60"):
            await wait_until_async(it.running, interval=0.05, on_timeout="nothing runs")
            await it.client.cancel("work")
            await wait_until_async(it.ended, interval=0.05, on_timeout="the task was not stopped")
            (one,) = await it.tasks()
            assert one.state == "cancelled"
