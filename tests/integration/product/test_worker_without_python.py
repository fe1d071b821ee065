"""A worker service in POSIX sh and curl over the real API: the HTTP contract is complete without the SDK."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from api.service import ApiOptions, RunningApi, admin_token, running_api
from mitosis.client.client import Client
from mitosis.contracts.http import TaskGroupSpec, TaskInfo
from mitosis.contracts.task import TaskSubmission
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.store import StoreOptions
from tests.support.checkout import ROOT
from tests.support.http_api import NoTemporal
from tests.support.waiting import wait_until_async

WORKER = ROOT / "examples/worker_without_python/worker.sh"
DOUBLE = 'sed -n \'s/.*"number":\\([0-9]*\\).*/{"twice":\\1\\1}/p\''


@dataclass
class Scene:
    """A served API with the service group ``work``, and workers in sh below one folder."""

    api: RunningApi
    client: Client
    token: str
    folder: Path

    async def start(self, command: str, worker_id: str = "sh-1") -> asyncio.subprocess.Process:
        """Start the worker in a process group of its own."""
        secret = self.folder / "token"
        secret.write_text(self.token)
        return await asyncio.create_subprocess_exec(
            *("sh", str(WORKER), "images/double@1", "sh", "-c", command),
            start_new_session=True,
            env={
                "PATH": os.environ["PATH"],
                "MITOSIS_API": self.api.url,
                "MITOSIS_TOKEN_FILE": str(secret),
                "WORKER_ID": worker_id,
                "WORKER_STATE": str(self.folder / worker_id),
                "WORKER_WAIT": "1",
                "WORKER_HEARTBEAT": "0.2",
            },
        )

    async def submit(self, count: int) -> None:
        tasks = [
            TaskSubmission(named_task="images/double@1", arguments={"number": i})
            for i in range(1, count + 1)
        ]
        await self.client.submit("work", tasks)

    async def tasks(self) -> Sequence[TaskInfo]:
        return [one async for one in self.client.tasks("work")]

    async def ended(self) -> bool:
        return (await self.client.group("work")).tasks_unfinished == 0

    async def running(self) -> bool:
        return any(one.state == "running" for one in await self.tasks())


@asynccontextmanager
async def scene(database: str, folder: Path) -> AsyncIterator[Scene]:
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace="mitosis",
    )
    async with running_api(options, NoTemporal()) as api:
        token = (await admin_token(api.app_state)).token
        async with Client(api.url, token, give_up_after=timedelta(seconds=5)) as client:
            await client.create_group(TaskGroupSpec(name="work", kind="service"))
            yield Scene(api, client, token, folder)


async def ended(worker: asyncio.subprocess.Process) -> int:
    """Stop a worker and wait for it, and leave nothing of its process group."""
    with suppress(ProcessLookupError):
        worker.terminate()
    try:
        return await asyncio.wait_for(worker.wait(), 20)
    finally:
        kill(worker)


def kill(worker: asyncio.subprocess.Process) -> None:
    """End the worker and all that it has started at once."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)


@pytest.mark.spec("S002-03", "S000-56", "S002-49")
async def test_tasks_run_and_the_worker_says_goodbye(database: str, tmp_path: Path) -> None:
    async with scene(database, tmp_path) as it:
        worker = await it.start(DOUBLE)
        try:
            await it.submit(4)
            await wait_until_async(it.ended, on_timeout="tasks are left")
            shown = await it.tasks()
            assert [one.state for one in shown] == ["succeeded"] * 4
            assert [one.detail for one in shown] == [
                {"result": {"twice": i * 11}} for i in range(1, 5)
            ]
            assert {one.worker_id for one in shown} == {"sh-1"}
        finally:
            assert await ended(worker) == 0
        last = await anext(aiter(it.client.worker_registrations("sh-1")))
        assert last.failure_reason == "stopped"


async def test_a_killed_worker_and_its_successor_give_each_task_one_result(
    database: str, tmp_path: Path
) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(3)
        first = await it.start("exec sleep 60")
        await wait_until_async(it.running, on_timeout="nothing runs")
        kill(first)
        await first.wait()
        second = await it.start(DOUBLE)
        try:
            await wait_until_async(it.ended, on_timeout="tasks are left")
            shown = await it.tasks()
            assert [one.state for one in shown] == ["succeeded"] * 3
            assert sorted(one.attempt for one in shown) == [1, 1, 2]
        finally:
            await ended(second)


async def test_a_failed_command_and_an_unreadable_result_are_reported(
    database: str, tmp_path: Path
) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(2)
        worker = await it.start("if grep -q '\"number\":1'; then exit 3; else echo no json; fi")
        try:
            await wait_until_async(it.ended, on_timeout="tasks are left")
            failed, refused = await it.tasks()
            assert (failed.state, failed.exit_code) == ("failed", 3)
            assert (refused.state, refused.kind) == ("failed", "result_refused")
        finally:
            await ended(worker)


async def test_a_cancelled_task_is_stopped(database: str, tmp_path: Path) -> None:
    async with scene(database, tmp_path) as it:
        await it.submit(1)
        worker = await it.start("exec sleep 60")
        try:
            await wait_until_async(it.running, on_timeout="nothing runs")
            await it.client.cancel("work")
            await wait_until_async(it.ended, on_timeout="the task was not stopped")
            (one,) = await it.tasks()
            assert one.state == "cancelled"
        finally:
            await ended(worker)
