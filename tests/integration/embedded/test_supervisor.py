"""One supervised process, with real children: small shell and Python programs."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from mitosis.embedded.errors import ProgramMissing, StartFailed
from mitosis.embedded.supervisor import (
    RESTARTS,
    ProcessSpec,
    SupervisedProcess,
    always_ready,
    pause_before_restart,
    run_to_end,
)
from mitosis.retry_policy import Backoff
from tests.support.processes import living, zombies
from tests.support.waiting import wait_until, wait_until_async

PAUSE = "import signal; signal.pause()"
REFUSE = (
    "import signal, pathlib, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "pathlib.Path(sys.argv[1]).touch(); [signal.pause() for _ in iter(int, 1)]"
)


def spec(
    tmp_path: Path,
    program: str = PAUSE,
    *arguments: str,
    ready: Callable[[], Awaitable[bool]] = always_ready,
    start_attempts: int = 1,
    ready_timeout: float = 10.0,
    stop_seconds: float = 5.0,
) -> ProcessSpec:
    return ProcessSpec(
        name="child",
        argv=[sys.executable, "-c", program, *arguments],
        log=tmp_path / "child.log",
        ready=ready,
        stop=((signal.SIGTERM, stop_seconds),),
        start_attempts=start_attempts,
        ready_timeout=ready_timeout,
    )


def exists(path: Path) -> Callable[[], Awaitable[bool]]:
    async def probe() -> bool:
        return os.access(path, os.F_OK)

    return probe


async def test_a_killed_process_is_restarted_and_leaves_no_zombie(tmp_path: Path) -> None:
    process = SupervisedProcess(spec(tmp_path))
    await process.start()
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await wait_until_async(lambda: process.starts == 2)
    assert process.pid not in (None, first)
    assert not psutil.pid_exists(first)
    await process.stop()
    assert process.pid is None
    assert zombies(psutil.Process().children()) == []


async def test_start_waits_for_real_use(tmp_path: Path) -> None:
    program = f"import pathlib; pathlib.Path(r'{tmp_path}/up').touch(); {PAUSE}"
    process = SupervisedProcess(spec(tmp_path, program, ready=exists(tmp_path / "up")))
    await process.start()
    assert (tmp_path / "up").exists()
    await process.stop()


async def test_failed_start_tells_the_status_and_the_end_of_the_log(tmp_path: Path) -> None:
    program = "import sys; print('no colour given', flush=True); sys.exit(3)"
    process = SupervisedProcess(spec(tmp_path, program, ready=exists(tmp_path / "never")))
    with pytest.raises(StartFailed, match=r"(?s)child did not start: exit status 3.*no colour"):
        await process.start()
    await process.stop()


async def test_a_start_that_stays_silent_is_ended(tmp_path: Path) -> None:
    silent = spec(tmp_path, ready=exists(tmp_path / "never"), ready_timeout=0.3)
    process = SupervisedProcess(silent)
    with pytest.raises(StartFailed, match=r"not ready after 0\.3 s"):
        await process.start()
    assert process.pid is None


async def test_first_start_may_need_several_attempts(tmp_path: Path) -> None:
    """As PostgreSQL does while the memory of its predecessor is not yet free."""
    program = (
        "import pathlib, signal, sys; mark = pathlib.Path(sys.argv[1]);"
        "mark.exists() or (mark.touch(), sys.exit(1));"
        "pathlib.Path(sys.argv[2]).touch(); signal.pause()"
    )
    mark, up = tmp_path / "mark", tmp_path / "up"
    again = spec(tmp_path, program, str(mark), str(up), ready=exists(up), start_attempts=2)
    process = SupervisedProcess(again)
    await process.start()
    assert process.starts == 1
    await process.stop()


async def test_a_probe_that_fails_itself_does_not_end_the_supervision(tmp_path: Path) -> None:
    asked = 0

    async def probe() -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise RuntimeError("the client library has a bad day")
        return True

    process = SupervisedProcess(spec(tmp_path, ready=probe))
    await process.start()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    await wait_until_async(lambda: process.starts == 2)
    assert process.pid is not None
    await process.stop()


async def test_stop_ends_with_sigkill(tmp_path: Path) -> None:
    up = tmp_path / "up"
    process = SupervisedProcess(spec(tmp_path, REFUSE, str(up), ready=exists(up), stop_seconds=0.2))
    await process.start()
    pid = process.pid
    assert pid is not None
    await process.stop()
    assert not psutil.pid_exists(pid)


async def test_a_stopped_process_gets_its_signal_all_the_same(tmp_path: Path) -> None:
    process = SupervisedProcess(spec(tmp_path))
    await process.start()
    assert process.pid is not None
    child = psutil.Process(process.pid)
    child.suspend()
    await wait_until_async(lambda: child.status() == psutil.STATUS_STOPPED)
    began = asyncio.get_running_loop().time()
    await process.stop()
    assert asyncio.get_running_loop().time() - began < 4  # SIGKILL comes after 5
    assert living([child]) == []


async def test_stop_is_idempotent_and_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    process = SupervisedProcess(spec(tmp_path, ready=exists(tmp_path / "never")))
    starting = asyncio.create_task(process.start())
    await wait_until_async(lambda: process.pid is not None)
    pid = process.pid
    assert pid is not None
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not psutil.pid_exists(pid)
    await process.stop()
    await process.stop()


async def test_start_and_stop_many_times_leaves_no_process_task_or_descriptor(
    tmp_path: Path,
) -> None:
    us = psutil.Process()
    gc.collect()  # what earlier tests left is closed now, not during this one
    before, children = us.num_fds(), set(us.children())
    for round_ in range(15):
        process = SupervisedProcess(spec(tmp_path))
        if round_ % 3 == 0:
            starting = asyncio.create_task(process.start())
            await asyncio.sleep(0)
            await process.stop()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        else:
            await process.start()
        await process.stop()
    assert set(us.children()) == children
    assert len(asyncio.all_tasks()) == 1
    gc.collect()
    assert us.num_fds() <= before
    assert not [t for t in threading.enumerate() if "waitpid" in t.name]


def test_a_child_dies_with_a_killed_supervisor(tmp_path: Path) -> None:
    up = tmp_path / "up"
    program = (
        "import asyncio, os, pathlib, sys\n"
        "from mitosis.embedded.supervisor import ProcessSpec, SupervisedProcess\n"
        "log, up = map(pathlib.Path, sys.argv[1:])\n"
        "async def ready(): return up.exists()\n"
        "async def main():\n"
        "    argv = [sys.executable, '-c', 'import pathlib, signal, sys;'\n"
        "            'pathlib.Path(sys.argv[1]).touch(); signal.pause()', str(up)]\n"
        "    process = SupervisedProcess(ProcessSpec('child', argv, log, ready))\n"
        "    await process.start()\n"
        "    print(process.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log"), str(up)],
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdout is not None
        child = psutil.Process(int(supervisor.stdout.readline()))
        supervisor.kill()
    wait_until(lambda: not living([child]), on_timeout=f"{child} lives on")


def test_a_child_of_a_dead_supervisor_does_not_even_begin(tmp_path: Path) -> None:
    """The window between fork and the death signal: the shell checks its parent and gives up."""
    from mitosis.embedded.supervisor import bound_to_us

    mark = tmp_path / "mark"
    argv = bound_to_us(ProcessSpec("child", ["touch", str(mark)], tmp_path / "log"))
    another_parent = argv.copy()
    another_parent[another_parent.index(str(os.getpid()))] = "1"
    subprocess.run(another_parent, check=True)
    assert not mark.exists()
    subprocess.run(argv, check=True)
    assert mark.exists()


async def test_logs_are_private_appended_and_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.embedded.supervisor.LOG_ROTATE_BYTES", 5)
    once = ProcessSpec("child", ["echo", "hello"], tmp_path / "child.log")
    await run_to_end(once)
    await run_to_end(once)
    assert once.log.stat().st_mode & 0o777 == 0o600
    assert once.log.read_text() == once.log.with_suffix(".log.1").read_text() == "hello\n"


async def test_run_to_end_reports_failure_and_missing_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "x.log"
    with pytest.raises(StartFailed, match=r"(?s)sh did not start: exit status 4.*oh dear"):
        await run_to_end(ProcessSpec("sh", ["sh", "-c", "echo oh dear; exit 4"], log))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProgramMissing, match="setpriv is needed: install util-linux"):
        await run_to_end(ProcessSpec("sh", ["true"], log))


def test_backoff_doubles_up_to_a_limit_and_is_forgotten_after_a_stable_life() -> None:
    backoff = Backoff(RESTARTS)
    waits = [pause_before_restart(backoff, lived=0.0) for _ in range(10)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]
    assert pause_before_restart(backoff, lived=11.0) == 0.1
