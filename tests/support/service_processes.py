"""Processes of worker services, ours and one in sh, against a served API: both speak the same HTTP."""

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from api.app_state import ControlPlane
from api.service import ApiOptions, RunningApi, admin_token, running_api
from mitosis.client.client import Client
from mitosis.contracts.http import TaskGroupSpec, TaskInfo
from mitosis.contracts.task import TaskSubmission
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.store import StoreOptions
from tests.support.checkout import ROOT
from tests.support.http_api import NoTemporal
from tests.support.prepared import PreparedPopen
from tests.support.program import clean_environment

WORKER = ROOT / "examples/worker_without_python/worker.sh"
TASK = "images/double@1"
ENDS_WITHIN_SECONDS = 20.0


class Process(Protocol):
    """A running worker service."""

    def terminate(self) -> None: ...

    def kill(self) -> None:
        """Send SIGKILL to it and to nothing that it has started, unless nothing else ends that."""
        ...

    async def wait(self) -> int: ...


class ShProcess:
    """The worker in sh, in a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.wait_for(self._process.wait(), ENDS_WITHIN_SECONDS)


class OurProcess:
    """`mitosis worker --task …`."""

    def __init__(self, process: PreparedPopen) -> None:
        self._process = process

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait, ENDS_WITHIN_SECONDS)


def start_ours(
    folder: Path, url: str, token: str, command: str | None, worker_id: str, *words: str
) -> Process:
    """Start ours, with ``words`` after its options; without a command they have the tasks."""
    given = ["--task", TASK, "--command", shlex.join(["sh", "-c", command])] if command else []
    options = ["--id", worker_id, "--state-dir", str(folder / worker_id), "--look-seconds", "0.2"]
    env = clean_environment(MITOSIS_API_URL=url, MITOSIS_TOKEN=token)
    with (folder / f"{worker_id}.log").open("ab") as log:
        process = PreparedPopen(
            "mitosis.cli", ["worker", *given, *options, *words], env, log.fileno(), cwd=folder
        )
    return OurProcess(process)


@dataclass
class Scene:
    """A served API with the service group ``work``, and worker services with their state below one folder."""

    options: ApiOptions
    folder: Path
    control: ControlPlane
    api: RunningApi = field(init=False)
    client: Client = field(init=False)
    token: str = field(init=False)
    _api: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open_api(self) -> None:
        """Serve the API; from the second time on at the same address."""
        self.api = await self._api.enter_async_context(running_api(self.options, self.control))
        self.token = (await admin_token(self.api.app_state)).token
        self.options = replace(self.options, port=int(self.api.url.rpartition(":")[2]))

    async def close_api(self) -> None:
        """End it, and every connection to it, at once."""
        await self._api.aclose()
        self._api = AsyncExitStack()

    async def start_sh(self, command: str, worker_id: str = "w-1") -> Process:
        secret = self.folder / "token"
        secret.write_text(self.token)
        process = await asyncio.create_subprocess_exec(
            *("sh", str(WORKER), TASK, "sh", "-c", command),
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
        return ShProcess(process)

    async def start_ours(
        self, command: str | None, worker_id: str = "w-1", *words: str, token: str | None = None
    ) -> Process:
        """As :func:`start_ours`, for the API of this scene."""
        token = self.token if token is None else token
        return start_ours(self.folder, self.api.url, token, command, worker_id, *words)

    def log(self, worker_id: str = "w-1") -> str:
        return (self.folder / f"{worker_id}.log").read_text()

    async def submit(self, count: int, **fields: Any) -> None:
        tasks = [
            TaskSubmission(named_task=TASK, arguments={"number": i}, **fields)
            for i in range(1, count + 1)
        ]
        await self.client.submit("work", tasks)

    async def submit_named(self, named_task: str, **arguments: Any) -> Sequence[int]:
        """Submit one task of another name; return its id."""
        tasks = [TaskSubmission(named_task=named_task, arguments=arguments)]
        return await self.client.submit("work", tasks)

    async def registered(self) -> bool:
        return any([one.last_heartbeat_at async for one in self.client.workers()])

    async def tasks(self) -> Sequence[TaskInfo]:
        return [one async for one in self.client.tasks("work")]

    async def ended(self) -> bool:
        return (await self.client.group("work")).tasks_unfinished == 0

    async def running(self) -> bool:
        return any(one.state == "running" for one in await self.tasks())

    async def reason_of_the_end(self, worker_id: str = "w-1") -> str | None:
        """Why the last registration ended; None while it is current."""
        last = await anext(aiter(self.client.worker_registrations(worker_id)))
        return last.failure_reason


@asynccontextmanager
async def scene(
    database: str, folder: Path, control: ControlPlane | None = None
) -> AsyncIterator[Scene]:
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace="mitosis",
        stop_after=timedelta(0),
    )
    it = Scene(options, folder, control or NoTemporal())
    await it.open_api()
    try:
        async with Client(it.api.url, it.token, give_up_after=timedelta(seconds=20)) as it.client:
            await it.client.create_group(TaskGroupSpec(name="work", kind="service"))
            yield it
    finally:
        await it.close_api()


async def stopped(worker: Process) -> int:
    """Stop a worker in order and return its exit status; kill it if it does not end."""
    worker.terminate()
    try:
        return await worker.wait()
    except (TimeoutError, subprocess.TimeoutExpired):
        worker.kill()
        raise
    finally:
        worker.kill()
