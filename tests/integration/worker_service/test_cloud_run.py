"""`mitosis worker --executor cloud_run` over the real API, killed while its execution runs."""

import json
from pathlib import Path

import pytest

from tests.support.cloud_run_server import cloud_run_server
from tests.support.service_processes import TASK, scene, stopped
from tests.support.waiting import wait_until_async


async def test_the_process_after_a_kill_adopts_the_execution_and_starts_none(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_acknowledged() -> bool:
        shown = [one.progress for one in await it.tasks()]
        return any(one is not None and one.checkpoint for one in shown)

    with cloud_run_server() as server:
        server.ends_after = 10**6
        monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
        job = {"project": "shop", "location": "here", "job": "resize", "endpoint": server.url}
        words = ("--task", TASK, "--executor", "cloud_run", "--configuration", json.dumps(job))
        async with scene(database, tmp_path) as it:
            await it.submit(1)
            first = await it.start_ours(None, "w-1", *words)
            try:
                await wait_until_async(is_acknowledged, interval=0.05, on_timeout=it.log)
            finally:
                first.kill()
            assert await first.wait() != 0
            server.executions[0].ends_after = 0
            second = await it.start_ours(None, "w-1", *words)
            try:
                await wait_until_async(it.ended, interval=0.05, on_timeout=it.log)
                (one,) = await it.tasks()
            finally:
                await stopped(second)
        (execution,) = server.executions
        assert (one.state, one.attempt) == ("succeeded", 2)
        assert (one.detail or {})["result"] == {
            "execution": execution.name,
            "log_uri": f"https://logs.example/{execution.name}",
        }
