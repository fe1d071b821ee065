"""An agent as a process, commanded by a real Temporal server: killed, restarted, stopped."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from starlette.requests import Request
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from mitosis.contracts.control import HookOutcome, HookVerdict, HostCommand, LeaseEnd, LeaseOutcome
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.contracts.temporal_names import host_task_queue
from mitosis.contracts.wire import CancelOrder
from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.temporal import EmbeddedTemporal
from mitosis.stop_deadline import STATUS
from tests.support.agents import PATIENCE_SECONDS, until
from tests.support.fake_api import TOKEN, FakeApi, command
from tests.support.prepared import PreparedProcess
from tests.support.processes import descendants, living, read
from tests.support.waiting import wait_until

FINISH = CancelOrder(kill=False, grace_seconds=0, reason="complete")


@dataclass(frozen=True)
class Running:
    """A running agent process and its log."""

    process: PreparedProcess
    log: Path

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        self.process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS)


@asynccontextmanager
async def agent_process(
    api: FakeApi, folder: Path, temporal: str, **more: Any
) -> AsyncIterator[Running]:
    given = {
        "api_url": api.url,
        "manager_id": str(api.manager_id),
        "token": TOKEN,
        "temporal_address": temporal,
        "state_dir": str(folder / "state"),
        "run_parent": str(folder),
    }
    path = folder / "agent.log"
    with path.open("ab") as log:
        process = await PreparedProcess.start(
            "tests.support.run_agent", given | more, out=log.fileno(), err=log.fileno()
        )
    running = Running(process, path)
    try:
        yield running
    finally:
        await running.kill()


@asynccontextmanager
async def commanded(api: FakeApi, temporal: str) -> AsyncIterator["Commander"]:
    client = await Client.connect(
        temporal, namespace="mitosis", data_converter=pydantic_data_converter
    )
    commander = Commander(client, api)
    yield commander
    for task in commander.tasks:
        task.cancel()


class Commander:
    """Sends host activities through Temporal, as a workflow would."""

    def __init__(self, client: Client, api: FakeApi) -> None:
        self.client = client
        self.api = api
        self.tasks: list[asyncio.Task[Any]] = []

    async def run(self, activity: str, result: type[Any], **other: Any) -> Any:
        values: dict[str, Any] = {
            "manager_id": self.api.manager_id,
            "task_group_id": self.api.task_group_id,
            "epoch": self.api.epoch,
        }
        return await self.client.execute_activity(
            activity,
            HostCommand(**(values | other)),
            id=f"{activity}-{uuid.uuid4()}",
            task_queue=host_task_queue(self.api.manager_id),
            result_type=result,
            start_to_close_timeout=timedelta(minutes=2),
            heartbeat_timeout=timedelta(seconds=5),
        )

    def start_lease(self) -> None:
        """Watch the lease in the background; ``await self.tasks[-1]`` is its outcome."""
        task = asyncio.get_running_loop().create_task(self.run("run_lease", LeaseOutcome))
        self.tasks.append(task)


@pytest.mark.spec("S002-34", "S000-38", "S000-37")
async def test_commands_of_temporal_run_a_lease_to_its_end(
    tmp_path: Path, temporal_server: str
) -> None:
    api = FakeApi()
    async with (
        api.serving(),
        commanded(api, temporal_server) as temporal,
        agent_process(api, tmp_path, temporal_server) as agent,
    ):
        ready = await temporal.run("prepare_environment", HookOutcome)
        assert ready.verdict is HookVerdict.READY
        ids = api.submit(*[command("/bin/true")] * 50)
        temporal.start_lease()
        await until(lambda: len(api.results) == len(ids))
        api.end(FINISH)
        assert (await temporal.tasks[-1]).end is LeaseEnd.ENDING
        cleaned = await temporal.run("clean_environment", HookOutcome, epoch=None)
        assert cleaned.verdict is HookVerdict.CLEANED
        forged = await temporal.run("run_lease", LeaseOutcome, epoch=999)
        assert forged.end is LeaseEnd.GONE
        status = await agent.terminate()
        assert status == 0, agent.log.read_text()
        assert api.said_goodbye


@pytest.mark.spec("S002-141", "S000-91", "S000-92", "S000-79", "S000-80", "S000-81", "S000-82")
async def test_a_killed_agent_leaves_nothing_and_goes_on_after_its_restart(
    tmp_path: Path, temporal_server: str
) -> None:
    api = FakeApi()
    pid = tmp_path / "pid"
    script = f"if [ -e {pid} ]; then exit 0; fi; echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 300"
    async with api.serving(), commanded(api, temporal_server) as temporal:
        async with agent_process(api, tmp_path, temporal_server) as agent:
            (task_id,) = api.submit(command("/bin/sh", "-c", script))
            temporal.start_lease()
            await until(pid.exists, on_timeout=agent.log.read_text)
            below = descendants(agent.process.pid)
            assert len(below) >= 4  # zygote, two workers, the command and its sleep
            await agent.kill()
            wait_until(lambda: not living(below))
        async with agent_process(api, tmp_path, temporal_server) as agent:
            await until(lambda: api.hellos == [1, 2], on_timeout=agent.log.read_text)
            temporal.start_lease()
            await until(lambda: task_id in api.results, on_timeout=agent.log.read_text)
            assert api.results[task_id].attempt == 2
            assert api.results[task_id].outcome == "succeeded"


async def test_a_stop_that_hangs_ends_in_time_with_everything_below(tmp_path: Path) -> None:
    api = FakeApi(taken=True, environment=EnvironmentState.READY)
    times = {"drain_seconds": 0, "stop_grace_seconds": 0, "ends_within_seconds": 0.05}
    async with (
        api.serving(),
        agent_process(api, tmp_path, "127.0.0.1:1", **times) as agent,
    ):
        (task_id,) = api.submit(command("/bin/sleep", "60"))
        await until(lambda: api.open[task_id].started)
        below = descendants(agent.process.pid)
        zygote = next(p for p in below if p.ppid() == agent.process.pid)
        os.kill(zygote.pid, signal.SIGSTOP)
        agent.process.terminate()
        await until(lambda: agent.process.returncode is not None, 10.0)
        assert agent.process.returncode == STATUS
        await until(
            lambda: not living(below), 5.0
        )  # a killed process may still have to be scheduled


async def test_a_stopped_zygote_does_not_save_leftovers_from_the_next_agent(
    tmp_path: Path, temporal_server: str
) -> None:
    """The guardian cannot act, so the next process finds what is left by its environment (P5)."""
    api = FakeApi()
    async with api.serving(), commanded(api, temporal_server) as temporal:
        async with agent_process(api, tmp_path, temporal_server) as agent:
            api.submit(command("/bin/sleep", "300"))
            temporal.start_lease()
            await until(
                lambda: "sleep" in read(descendants(agent.process.pid), psutil.Process.name),
                on_timeout=agent.log.read_text,
            )
            below = descendants(agent.process.pid)
            zygote = next(p for p in below if p.ppid() == agent.process.pid)
            os.kill(zygote.pid, signal.SIGSTOP)
            await agent.kill()
            assert living(below)
        left = tmp_path / "state/scratch/left"
        left.touch()
        async with agent_process(api, tmp_path, temporal_server) as agent:
            await until(lambda: api.hellos == [1, 2], on_timeout=agent.log.read_text)
            assert not living(below)
            assert not left.exists()


def lasting(pids: Path) -> HookSpec:
    """A hook that goes on, with a child and with a daemon that is below it no more; writes their pids."""
    daemon = f"setsid sh -c 'echo $$ >> {pids}; exec sleep 300' &"
    script = f"({daemon}); sleep 300 & echo $$ $! >> {pids}; wait"
    return HookSpec(command=("/bin/sh", "-c", script))


async def started(pids: Path) -> list[psutil.Process]:
    """Wait for all three."""
    found: list[psutil.Process] = []

    def all_there() -> bool:
        if pids.exists() and len(words := pids.read_text().split()) == 3:
            found.extend(psutil.Process(int(pid)) for pid in words)
        return bool(found)

    await until(all_there)
    return found


async def test_a_setup_dies_with_its_agent_and_all_that_it_started(
    tmp_path: Path, temporal_server: str
) -> None:
    """Nobody starts an agent again."""
    api = FakeApi(setup=lasting(tmp_path / "pids"))
    async with (
        api.serving(),
        commanded(api, temporal_server) as temporal,
        agent_process(api, tmp_path, temporal_server) as agent,
    ):
        preparing = asyncio.create_task(temporal.run("prepare_environment", HookOutcome))
        below = await started(tmp_path / "pids")
        await agent.kill()
        await until(lambda: not living(below))
        preparing.cancel()


async def test_a_teardown_dies_with_its_agent_and_is_owed_to_the_next(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    api = FakeApi(teardown=lasting(pids))
    api.owed, api.environment = (api.task_group_id,), EnvironmentState.OWED
    async with api.serving():
        async with agent_process(api, tmp_path, "127.0.0.1:1") as agent:
            below = await started(pids)
            await agent.kill()
            await until(lambda: not living(below))
        api.teardown, api.environment = HookSpec(command=("true",)), EnvironmentState.OWED
        async with agent_process(api, tmp_path, "127.0.0.1:1"):
            await until(lambda: api.environment is EnvironmentState.GONE)
    assert not api.degraded


async def test_a_stop_that_hangs_leaves_what_a_hook_started_to_its_guard(tmp_path: Path) -> None:
    pids, answered = tmp_path / "pids", asyncio.Event()

    class Api(FakeApi):
        async def goodbye(self, request: Request) -> Any:
            await answered.wait()
            return await super().goodbye(request)

    api = Api(teardown=lasting(pids))
    api.owed, api.environment = (api.task_group_id,), EnvironmentState.OWED
    times = {"drain_seconds": 0, "stop_grace_seconds": 0, "ends_within_seconds": 0}
    async with (
        api.serving(),
        agent_process(api, tmp_path, "127.0.0.1:1", **times) as agent,
    ):
        below = await started(pids)
        assert await agent.terminate() == STATUS, agent.log.read_text()
        await until(lambda: not living(below))
        answered.set()


async def test_what_a_probe_started_is_killed_by_the_next_agent_if_not_before(
    tmp_path: Path, temporal_server: str
) -> None:
    """Its guard has died too. What the setup has started stays: the environment is still valid."""
    pids, pid = tmp_path / "pids", tmp_path / "pid"
    setup = f"setsid sh -c 'echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 300' & exit 0"
    api = FakeApi(setup=HookSpec(command=("/bin/sh", "-c", setup)), probe=lasting(pids))
    async with api.serving(), commanded(api, temporal_server) as temporal:
        async with agent_process(api, tmp_path, temporal_server):
            await temporal.run("prepare_environment", HookOutcome)
            await until(pid.exists)
        daemon = psutil.Process(int(pid.read_text()))
        try:
            async with agent_process(api, tmp_path, temporal_server) as agent:
                below = await started(pids)
                processes = read(descendants(agent.process.pid), lambda p: (p, p.cmdline()))
                [guard] = [process for process, words in processes if "-I" in words]
                guard.suspend()
                await agent.kill()
                guard.kill()
            assert living(below) == below
            api.probe = HookSpec(command=("true",))
            async with agent_process(api, tmp_path, temporal_server):
                await until(lambda: len(api.hellos) == 3)
                assert not living(below)
                assert living([daemon])
        finally:
            daemon.kill()


async def test_what_a_finished_setup_started_outlives_the_agent(
    tmp_path: Path, temporal_server: str
) -> None:
    pid = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 300' & exit 0"
    api = FakeApi(setup=HookSpec(command=("/bin/sh", "-c", script)))
    async with api.serving(), commanded(api, temporal_server) as temporal:
        async with agent_process(api, tmp_path, temporal_server):
            await temporal.run("prepare_environment", HookOutcome)
            wait_until(pid.exists)
        daemon = psutil.Process(int(pid.read_text()))
        try:
            async with agent_process(api, tmp_path, temporal_server):
                await until(lambda: len(api.hellos) == 2)
                assert living([daemon])
        finally:
            daemon.kill()


async def test_the_exit_status_says_that_a_restart_would_not_help(
    tmp_path: Path, temporal_server: str
) -> None:
    api = FakeApi()
    async with api.serving():
        api.refuse["/managers/hello"] = (409, "superseded")
        async with agent_process(api, tmp_path, temporal_server) as agent:
            assert await agent.ended() == 78
            assert "agent.refused" in agent.log.read_text()


async def test_an_agent_outlives_temporal(tmp_path: Path) -> None:
    """It starts without, is commanded as soon as there is one, and works on while that is away."""
    folder = DataFolder(tmp_path / "temporal")
    folder.lock()
    temporal = EmbeddedTemporal(folder)
    await temporal.start()
    await temporal.stop()  # its address is known now
    api = FakeApi()
    go = tmp_path / "go"
    async with api.serving(), agent_process(api, tmp_path, temporal.address) as agent:
        await until(
            lambda: "temporal.unreachable" in agent.log.read_text(),
        )
        await temporal.start()
        try:
            async with commanded(api, temporal.address) as commander:
                (task_id,) = api.submit(
                    command("/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done")
                )
                commander.start_lease()
                await until(lambda: api.open[task_id].started)
            await temporal.stop()
            (meanwhile,) = api.submit(command("/bin/true"))
            await until(lambda: meanwhile in api.results)
            temporal = EmbeddedTemporal(folder)
            await temporal.start()
            async with commanded(api, temporal.address) as commander:
                commander.start_lease()
                go.touch()
                await until(lambda: task_id in api.results)
                assert api.results[task_id].attempt == 1
                api.end(FINISH)
                outcome = await commander.tasks[-1]
                assert outcome.end is LeaseEnd.ENDING
        finally:
            await temporal.stop()
            folder.release()
