"""The stack as programs see it: whole, killed, started again, beside itself, in the wrong place."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

import psutil
import psycopg
import pytest
from temporalio.client import Client

from mitosis.embedded.data_folder import default_run_dir
from mitosis.embedded.errors import DataFolderInUse, PortInUse, StartFailed
from mitosis.embedded.stack import EmbeddedStack
from mitosis.settings import Settings, TemporalSettings
from mitosis.stop_deadline import STATUS
from tests.support.checkout import ROOT
from tests.support.clusters import begin_with_cluster
from tests.support.prepared import PreparedPopen, base_environment
from tests.support.processes import descendants, living, owner, read
from tests.support.waiting import wait_until

NOBODY = 65534
_PYTHONPATH = os.pathsep.join(
    (str(ROOT), *(place for place in sys.path if place.endswith("-packages")))
)
PROGRAM = ROOT / "tests/support/run_stack.py"


@contextmanager
def started(
    data_dir: Path, *words: str, path: str = os.environ["PATH"], new: bool = False
) -> Iterator[tuple[PreparedPopen, TextIO]]:
    """A program that runs the stack, and what it prints. Killed at the end when it still runs.

    ``new``: the folder is new to it, and it makes the cluster itself.
    """
    if not new and "postgres" not in words and not (data_dir / "postgres").exists():
        begin_with_cluster(data_dir)
    reads, writes = os.pipe()
    env = {**base_environment(), "PATH": path}
    with os.fdopen(reads) as said:
        program = PreparedPopen(
            "tests.support.run_stack", [str(data_dir), *words], env, writes, err=2
        )
        os.close(writes)
        try:
            yield program, said
        finally:
            program.kill()
            program.wait()


@contextmanager
def running(
    data_dir: Path, *without: str, path: str = os.environ["PATH"], new: bool = False
) -> Iterator[tuple[PreparedPopen, dict[str, str]]]:
    """As :func:`started`, up; with its addresses."""
    with started(data_dir, *without, path=path, new=new) as (program, said):
        line = said.readline()
        assert line, f"the stack ended with {program.wait()}"
        yield program, json.loads(line)


def name_and_user(process: psutil.Process) -> tuple[str, str]:
    return process.name(), process.username()


def gone(processes: list[psutil.Process]) -> None:
    wait_until(lambda: not living(processes), 20, lambda: living(processes))


def test_ctrl_c_stops_everything_cleanly(data_dir: Path) -> None:
    with running(data_dir, new=True) as (program, up):
        below = descendants(program.pid)
        assert {"postgres", "temporal"} <= set(read(below, psutil.Process.name))
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 0
        assert living(below) == []
        assert not (data_dir / "postgres/data/postmaster.pid").exists()
        assert not default_run_dir(data_dir).exists()
        port = int(up["temporal_address"].rsplit(":", 1)[1])
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))


def test_a_stop_ends_in_time_whatever_hangs(data_dir: Path) -> None:
    """Stopped children with sessions of a server that is hung, and a thread of the process itself."""
    with running(data_dir, "within=2", "jammed") as (program, _):
        below = descendants(program.pid)
        read(below, psutil.Process.suspend)
        began = time.monotonic()
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == STATUS
        assert time.monotonic() - began < 15
        gone(below)


def test_a_stop_during_the_start_is_heard(data_dir: Path) -> None:
    with started(data_dir, new=True) as (program, _):
        wait_until(lambda: descendants(program.pid), 30)
        below = descendants(program.pid)
        program.terminate()
        assert program.wait(60) == 0
    assert living(below) == []
    assert not default_run_dir(data_dir).exists()


def test_a_stop_during_work_on_the_stack_ends_it_in_order(data_dir: Path) -> None:
    """Nobody waits for the signal (a closed terminal sends it): what is done with the stack is cancelled."""
    with running(data_dir, "temporal", "waiting") as (program, _):
        below = descendants(program.pid)
        program.send_signal(signal.SIGHUP)
        assert program.wait(30) == 0
        assert living(below) == []
        assert not (data_dir / "postgres/data/postmaster.pid").exists()


def test_kill_leaves_no_process_and_the_next_start_has_lost_nothing(data_dir: Path) -> None:
    with running(data_dir) as (program, up):
        with psycopg.connect(up["database_url"], autocommit=True) as link:
            link.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        asyncio.run(_start_workflow(up["temporal_address"]))
        below = descendants(program.pid)
        assert {"postgres", "temporal"} < set(read(below, psutil.Process.name))
        program.kill()
        program.wait()
        gone(below)
    with running(data_dir) as (_, again):
        assert again == up
        with psycopg.connect(again["database_url"]) as link:
            assert link.execute("SELECT answer FROM kept").fetchone() == (42,)
        assert asyncio.run(_status(again["temporal_address"])) == "RUNNING"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs other privileges")
def test_a_server_of_a_system_user_dies_with_us_too(tmp_path: Path) -> None:
    """Root without user namespaces, as in most containers."""
    (tmp_path / "unshare").write_text("#!/bin/sh\nexit 1")
    (tmp_path / "unshare").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="mt-") as place:
        for _ in range(2):
            with running(Path(place), "temporal", path=path, new=True) as (program, _up):
                below = descendants(program.pid)
                users = {user for name, user in read(below, name_and_user) if name == "postgres"}
                assert users & {"mitosis", "postgres", "nobody"}
                program.kill()
                program.wait()
                gone(below)


def test_kill_and_start_at_once_many_times(data_dir: Path) -> None:
    """The next start meets the dying servers of the one before."""
    total = 4
    for number in range(total):
        with running(data_dir, "temporal") as (program, up):
            with psycopg.connect(up["database_url"], autocommit=True) as link:
                link.execute("CREATE TABLE IF NOT EXISTS starts (number int)")
                link.execute("INSERT INTO starts VALUES (%s)", [number])
                found = link.execute("SELECT count(*) FROM starts").fetchone()
            assert found == (number + 1,)
            program.kill()


def test_second_stack_on_the_folder_is_refused(data_dir: Path) -> None:
    with running(data_dir, "postgres") as (program, _):

        async def second() -> None:
            async with EmbeddedStack(Settings(data_dir=data_dir)):
                pass

        with pytest.raises(DataFolderInUse, match=f"{data_dir} is in use by process {program.pid}"):
            asyncio.run(second())


def test_concurrent_starts_have_one_winner(data_dir: Path) -> None:
    async def one() -> str:
        async with EmbeddedStack(Settings(data_dir=data_dir)) as stack:
            return stack.temporal_address

    async def race() -> list[str | BaseException]:
        return await asyncio.gather(*(one() for _ in range(5)), return_exceptions=True)

    begin_with_cluster(data_dir)
    results = asyncio.run(race())
    refused = [result for result in results if isinstance(result, DataFolderInUse)]
    assert len(refused) == 4
    assert len([result for result in results if isinstance(result, str)]) == 1


def test_two_stacks_run_beside_each_other(tmp_path: Path) -> None:
    with running(tmp_path / "a") as (_, first), running(tmp_path / "b") as (_, second):
        assert first["database_url"] != second["database_url"]
        assert first["temporal_address"] != second["temporal_address"]


async def test_a_taken_port_stops_what_was_started(data_dir: Path) -> None:
    before = set(descendants(os.getpid()))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = TemporalSettings(port=other.getsockname()[1])
        with pytest.raises(PortInUse, match="MITOSIS_TEMPORAL__PORT"):
            async with EmbeddedStack(Settings(data_dir=data_dir, temporal=taken)):
                pass
    assert living([p for p in descendants(os.getpid()) if p not in before]) == []
    async with EmbeddedStack(_no_servers(data_dir)):
        """The folder is free again."""


async def test_servers_at_given_addresses_are_not_started(data_dir: Path) -> None:
    before = set(descendants(os.getpid()))
    async with EmbeddedStack(_no_servers(data_dir)) as stack:
        assert stack.database_url == "postgresql://elsewhere/x"
        assert (stack.temporal_address, stack.ui_url) == ("elsewhere:7233", "http://elsewhere:8080")
        assert set(descendants(os.getpid())) <= before  # processes of servers before may end


async def test_parts_end_in_reverse_order_also_when_one_fails(data_dir: Path) -> None:
    ended: list[str] = []

    @asynccontextmanager
    async def part(name: str) -> AsyncIterator[str]:
        yield name
        ended.append(name)

    async with EmbeddedStack(_no_servers(data_dir)) as stack:
        assert await stack.add_service("a", part("a")) == "a"
        log = stack.folder.log("child")

        async def has_spoken() -> bool:
            return os.access(log, os.R_OK) and log.read_text() == "x\n"

        child = await stack.add_process(
            "child", [sys.executable, "-c", _SAY_WHO], env={"WHO": "x"}, ready=has_spoken
        )
        await stack.add_service("b", part("b"))
        pid = child.pid
        assert pid is not None
        with pytest.raises(StartFailed, match="exit status 7"):
            await stack.add_process("bad", ["sh", "-c", "exit 7"], ready=_never)
    assert ended == ["b", "a"]
    assert not psutil.pid_exists(pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test proves it for an ordinary user")
def test_an_ordinary_user_runs_it() -> None:
    with tempfile.TemporaryDirectory(prefix="mt-home-") as home:
        os.chown(home, NOBODY, NOBODY)
        env = _environment_of_a_user(home)
        with subprocess.Popen(
            [*_as_nobody(_python_of_a_user(env)), str(PROGRAM), f"{home}/data"],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=home,
        ) as program:
            assert program.stdout is not None
            assert "temporal_address" in json.loads(program.stdout.readline())
            assert set(read(descendants(program.pid), owner)) == {NOBODY}
            program.terminate()
            assert program.wait(60) == 0


def _environment_of_a_user(home: str) -> dict[str, str]:
    return {
        "HOME": home,
        "PATH": f"{os.environ['PATH']}:{Path(sys.executable).parent}",
        "PYTHONPATH": _PYTHONPATH,
    }


def _python_of_a_user(env: dict[str, str]) -> str:
    """An interpreter that another user can run with our libraries: ours may be below /root."""
    version = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}"):
        tried = [*_as_nobody(python), "-c", "import mitosis.embedded.stack"]
        if (
            subprocess.run(tried, env=env, cwd="/", capture_output=True, check=False).returncode
            == 0
        ):
            return python
    pytest.skip("no interpreter that other users can run")


def _as_nobody(python: str) -> list[str]:
    """Through a shell: ``setpriv`` itself may still look into closed folders."""
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", *ids, "/bin/sh", "-c", 'exec "$0" "$@"', python]


_SAY_WHO = "import os, signal; print(os.environ['WHO'], flush=True); signal.pause()"


async def _never() -> bool:
    return False


def _no_servers(data_dir: Path) -> Settings:
    return Settings.model_validate(
        {
            "data_dir": data_dir,
            "database": {"url": "postgresql://elsewhere/x"},
            "temporal": {"address": "elsewhere:7233", "ui_url": "http://elsewhere:8080"},
        }
    )


async def _start_workflow(address: str) -> None:
    client = await Client.connect(address, namespace="mitosis")
    await client.start_workflow("nobody-runs-it", id="kept", task_queue="none")


async def _status(address: str) -> str:
    client = await Client.connect(address, namespace="mitosis")
    described = await client.get_workflow_handle("kept").describe()
    assert described.status is not None
    return described.status.name
