"""`mitosis worker --task` over the real API: handlers, its two ways to stop, and what ends it."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.task import RetryPolicy
from mitosis.store.services.contact import say_goodbye
from tests.support.service_processes import TASK, Process, scene, stopped
from tests.support.waiting import wait_until_async

HANDLERS = """
import asyncio
import mitosis
from mitosis import current_task

def double(number):
    task = current_task()
    return {"twice": 2 * number, "size": task.configuration["size"], "task": str(task.task_uuid),
            "group": task.task_group_name, "named": task.named_task, "version": task.configuration_version}

async def later(number):
    await asyncio.sleep(0)
    return number + 1
"""
"""Of a user, in the folder in which the service is started."""
WAITS = "touch up-$MITOSIS_TASK_ID; while [ ! -e go ]; do sleep 0.02; done; echo 1"
TRAPS = "trap 'touch asked; exit 0' TERM; touch up; while :; do sleep 0.02; done"


async def exit_of(worker: Process) -> int:
    """Wait until it ends by itself."""
    try:
        return await worker.wait()
    finally:
        worker.kill()


async def test_handlers_have_their_arguments_and_the_configuration_of_the_service(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(HANDLERS)
    async with scene(database, tmp_path) as it:
        await it.submit(2)
        (later,) = await it.submit_named("images/later@2", number=4)
        given = ("--task", f"{TASK}=shop:double", "--task", "images/later@2=shop:later")
        words = (*given, "--configuration", '{"size": 300}', "--slots", "2")
        worker = await it.start_ours(None, "w-1", *words)
        try:
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            shown = {one.task_id: one for one in await it.tasks()}
            assert {one.state for one in shown.values()} == {"succeeded"}, it.log()
            assert (shown.pop(later).detail or {})["result"] == 5
            for one in shown.values():
                result: Any = (one.detail or {})["result"]
                assert UUID(result.pop("task")) == one.task_uuid
                assert result.pop("twice") in {2, 4}
                assert result == {"size": 300, "group": "work", "named": TASK, "version": 1}
                assert one.configuration_version == 1
        finally:
            await stopped(worker)


FILE = "namespace_name: images\nname: double\nversion: '1'\nconfiguration: {size: %d}\n"
NAMED = """
import asyncio
from mitosis import current_task, handler

@handler(named_task="images/double@1")
async def double(number):
    await asyncio.sleep(0)
    return {"size": current_task().configuration["size"], "version": current_task().configuration_version}
"""


@pytest.mark.spec("S004-08")
async def test_a_changed_file_counts_from_the_next_claim_on_without_a_restart(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(NAMED)
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / "double.yaml"
    file.write_text(FILE % 300)

    async def size_is(size: int) -> bool:
        tasks = (await it.client.worker("w-1")).supported_tasks or []
        return [one.configuration for one in tasks] == [{"size": size}]

    async with scene(database, tmp_path) as it:
        words = ("--module", "shop", "--config", str(tmp_path / "config"), "--slots", "50")
        worker = await it.start_ours(None, "w-1", *words)
        try:
            await wait_until_async(it.registered, interval=0.05, on_timeout=it.log)
            await it.submit(1)
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            file.write_text(FILE % 1024)
            await wait_until_async(lambda: size_is(1024), on_timeout=it.log)
            await it.submit(1)
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            shown = sorted(await it.tasks(), key=lambda one: one.task_id)
            assert [(one.detail or {})["result"] for one in shown] == [
                {"size": 300, "version": 1},
                {"size": 1024, "version": 2},
            ]
            assert [one.configuration_version for one in shown] == [1, 2]
            registrations = [one async for one in it.client.worker_registrations("w-1")]
            assert len(registrations) == 1
        finally:
            await stopped(worker)


async def test_a_stop_finishes_what_runs_and_gives_back_what_has_not_begun(
    database: str, tmp_path: Path
) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(2)
        worker = await it.start_ours(WAITS, "w-1", "--slots", "1")
        try:
            await wait_until_async(it.running, interval=0.05, on_timeout=it.log)
            worker.terminate()
            await wait_until_async(lambda: "worker.stopping" in it.log(), on_timeout=it.log)
            (tmp_path / "go").touch()
            assert await exit_of(worker) == 0, it.log()
        finally:
            worker.kill()
        first, second = sorted(await it.tasks(), key=lambda one: one.task_id)
        assert (first.state, first.attempt) == ("succeeded", 1)
        assert (second.state, second.attempt) == ("ready", 0)
        assert await it.reason_of_the_end() == "stopped"


@pytest.mark.parametrize("words", [(), ("--now",)], ids=["two signals", "--now"])
async def test_a_forced_stop_stops_what_runs_at_no_charge(
    database: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(1)
        worker = await it.start_ours(TRAPS, "w-1", "--slots", "1", *words)
        try:
            await wait_until_async((tmp_path / "up").exists, on_timeout=it.log)
            worker.terminate()
            if not words:
                await wait_until_async(lambda: "worker.stopping" in it.log(), on_timeout=it.log)
                assert not (tmp_path / "asked").exists()
                worker.terminate()
            assert await exit_of(worker) == 0, it.log()
        finally:
            worker.kill()
        assert (tmp_path / "asked").exists()
        (one,) = await it.tasks()
        assert (one.state, one.attempt, one.kind) == ("ready", 1, None)
        assert await it.reason_of_the_end() == "stopped"


@pytest.mark.spec("S000-56")
async def test_what_ended_while_the_api_was_away_is_reported_by_the_process_after_a_kill(
    database: str, tmp_path: Path
) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(1)
        first = await it.start_ours(WAITS, "w-1", "--slots", "1")
        await wait_until_async(it.running, interval=0.05, on_timeout=it.log)
        await it.close_api()
        journal = tmp_path / "w-1" / "journal"
        empty = journal.read_bytes()
        (tmp_path / "go").touch()
        await wait_until_async(lambda: "reports.not_acknowledged" in it.log(), on_timeout=it.log)
        await wait_until_async(lambda: journal.read_bytes() != empty)
        first.kill()
        await first.wait()
        await it.open_api()
        second = await it.start_ours("echo 9")
        try:
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            (one,) = await it.tasks()
            assert (one.attempt, (one.detail or {})["result"]) == (1, 1)
        finally:
            await stopped(second)


async def test_a_registration_that_is_over_is_made_again_and_work_goes_on(
    database: str, tmp_path: Path
) -> None:
    async with scene(database, tmp_path) as it:
        worker = await it.start_ours("echo 1")
        try:
            await wait_until_async(it.registered, interval=0.05, on_timeout=it.log)
            await it.submit(1)
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            before = await it.client.worker("w-1")
            last = await anext(aiter(it.client.worker_registrations("w-1")))
            await say_goodbye(
                it.api.app_state.store, before.worker_uuid, last.incarnation, "of an operator"
            )
            await it.submit(1)
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            again = await anext(aiter(it.client.worker_registrations("w-1")))
            assert again.registration_id > last.registration_id
            assert again.incarnation == last.incarnation
        finally:
            await stopped(worker)


async def test_a_second_process_with_the_id_ends_the_first(database: str, tmp_path: Path) -> None:
    async with scene(database, tmp_path) as it:
        first = await it.start_ours("echo 1")
        await wait_until_async(it.registered, interval=0.05, on_timeout=it.log)
        other = str(tmp_path / "other")
        second = await it.start_ours("echo 1", "w-1", "--state-dir", other)
        try:
            assert await exit_of(first) == 78, it.log()
            await it.submit(1)
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
        finally:
            await stopped(second)


async def test_what_cannot_work_ends_at_once_and_says_why(database: str, tmp_path: Path) -> None:
    async with scene(database, tmp_path) as it:
        refused = await it.start_ours("echo 1", "w-1", token="of nobody")
        assert await exit_of(refused) == 78
        assert "unauthenticated" in it.log()
        broken = await it.start_ours(None, "w-2", "--task", "images/double@1=no_such:run")
        assert await exit_of(broken) == 65
        assert "cannot import no_such" in it.log("w-2")
        assert [one async for one in it.client.workers()] == []


async def test_a_failed_task_is_tried_again_as_it_says(database: str, tmp_path: Path) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(1, retry=RetryPolicy(max_attempts=2))
        command = "if [ -e tried ]; then echo 2; else touch tried; exit 5; fi"
        worker = await it.start_ours(command)
        try:
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
            (one,) = await it.tasks()
            assert (one.state, one.attempt) == ("succeeded", 2)
        finally:
            await stopped(worker)


async def test_each_slot_runs_one_task(database: str, tmp_path: Path) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(3)
        worker = await it.start_ours(WAITS, "w-1", "--slots", "2")
        try:
            await wait_until_async(lambda: len([*tmp_path.glob("up-*")]) == 2, on_timeout=it.log)
            states = sorted(str(one.state) for one in await it.tasks())
            assert states == ["ready", "running", "running"]
            (tmp_path / "go").touch()
            await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
        finally:
            await stopped(worker)
