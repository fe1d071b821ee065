"""A worker service whose zygotes die again and again pauses, gives back what it holds and goes on."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.http import TaskInfo
from mitosis.execution import session_workers
from mitosis.execution.run_folder import HostFolders
from mitosis.retry_policy import RetryPolicy
from mitosis.worker_service import slot_pauses
from mitosis.worker_service.config import ServiceConfig
from mitosis.worker_service.discovery import Discovery, Sources
from mitosis.worker_service.service import Service, process_id
from tests.support.service_processes import TASK, Scene, scene
from tests.support.waiting import wait_until_async

NUMBER = """grep -o '"number":[ ]*[0-9]*' | grep -o '[0-9]*$'"""
KILL_ZYGOTE = "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 60"
SCRIPT = f"n=$({NUMBER}); if [ $n = 1 ]; then {KILL_ZYGOTE}; fi; echo $n"
"""The task with the number 1 kills the zygote of its worker, the others succeed."""


@asynccontextmanager
async def serving(it: Scene, folder: Path, slots: int) -> AsyncIterator[Service]:
    """A worker service in this process."""
    sources = Sources(folder=str(folder), tasks=[TASK], command=["sh", "-c", SCRIPT])
    config = ServiceConfig(
        api_url=it.api.url,
        worker_id="w-1",
        token=it.token,
        state_dir=folder / "w-1",
        folder=folder,
        slots=slots,
        look_seconds=0.1,
    )
    with HostFolders.lock(process_id(config.state_dir), config.state_dir) as folders:
        service = Service(config, Discovery(sources), folders)
        running = asyncio.get_running_loop().create_task(service.run())
        try:
            yield service
            assert not running.done(), "the service has ended"
            service.stop()
            await asyncio.wait_for(asyncio.shield(running), 20)
        finally:
            await cancel_and_wait(running)


async def test_zygotes_that_die_pause_a_service_and_do_not_end_it(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    soon = RetryPolicy(first_seconds=0.01, longest_seconds=0.02, jitter=0.0)
    monkeypatch.setattr(session_workers, "POOL_RETRIES", soon)
    monkeypatch.setattr(session_workers, "MOST_DEATHS", 2)
    pauses = RetryPolicy(first_seconds=0.3, longest_seconds=0.6, jitter=0.0)
    monkeypatch.setattr(slot_pauses, "PAUSES", pauses)

    def pauses_said() -> list[float]:
        said = [one for one in caplog.records if one.getMessage() == "slots.paused"]
        return [vars(one)["pause_seconds"] for one in said]

    async def is_registered() -> bool:
        return await it.reason_of_the_end() is None

    async def is_healthy() -> bool:
        """After its first heartbeat."""
        return (await it.client.worker("w-1")).health == "healthy"

    async def shown() -> list[TaskInfo]:
        return sorted(await it.tasks(), key=lambda one: one.task_id)

    async with scene(database, tmp_path) as it:
        async with serving(it, tmp_path, slots=2) as service:
            await it.submit(4)
            await wait_until_async(pauses_said, on_timeout=lambda: caplog.text)
            await wait_until_async(it.ended, interval=0.05, on_timeout=lambda: caplog.text)
            first, *others = await shown()
            assert (first.state, first.kind) == ("failed", "workers_lost")
            assert [one.state for one in others] == ["succeeded"] * 3
            assert pauses_said() == [0.3, 0.6]
            await wait_until_async(is_registered, on_timeout=lambda: caplog.text)
            ends = [one.failure_reason async for one in it.client.worker_registrations("w-1")]
            assert "2 zygotes in a row ended soon: killed by SIGKILL" in str(ends[-1])
            await wait_until_async(is_healthy, on_timeout=lambda: caplog.text)
            assert not service.forced
        assert await it.reason_of_the_end() == "stopped"
