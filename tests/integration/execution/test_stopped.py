"""Workers and zygotes that a signal stops, as real processes."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.task import TaskSubmission
from mitosis.execution import stopped
from mitosis.execution.stopped import is_stopped
from mitosis.worker.process_tree import stat_fields
from tests.support.agents import Commands, running_agent, until
from tests.support.checkout import ROOT
from tests.support.fake_api import FakeApi, command
from tests.support.waiting import wait_until

ONE_WORKER = WorkerAllocationPlan(worker_count=1)
LIMIT = timedelta(seconds=0.5)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped, "LOOK_SECONDS", 0.1)


def zygote(host: Commands) -> int:
    pool = host.session.workers.pool
    assert pool is not None
    return pool.zygote


@pytest.mark.parametrize("what", ["its worker", "its worker and the zygote"])
async def test_a_task_without_a_timeout_that_stops_its_worker_is_a_crash(
    tmp_path: Path, what: str
) -> None:
    async with (
        FakeApi(plan=ONE_WORKER).serving() as api,
        running_agent(api, tmp_path, stopped_limit=LIMIT) as host,
    ):
        (first,) = api.submit(command("/bin/true"))
        host.start_lease()
        await host.done(first)
        both = "$PPID" if what == "its worker" else f"{zygote(host)} $PPID"
        script = command("/bin/sh", "-c", f"kill -STOP {both}; sleep 600")
        task, waiting = api.submit(script, command("/bin/true"))
        await host.done(task, waiting)
        report = api.results[task]
        assert (report.outcome, report.kind, report.signal) == (
            "failed",
            "worker_lost",
            signal.SIGSTOP,
        )
        assert b"was stopped by SIGSTOP" in bytes(report.detail or b"")
        assert api.results[waiting].outcome == "succeeded"


@pytest.mark.parametrize("how", ["pthread_exit", "system call"])
async def test_a_handler_that_ends_the_main_thread_only_is_a_crash(
    tmp_path: Path, how: str
) -> None:
    module = "tests.support.sample_handlers"
    plan = WorkerAllocationPlan(worker_count=1, handler_modules=(module,), python_path=(str(ROOT),))
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        task, waiting = api.submit(
            TaskSubmission(handler=f"{module}:end_main_thread", arguments=[how]),
            command("/bin/true"),
        )
        host.start_lease()
        await host.done(task, waiting)
        report = api.results[task]
        assert (report.outcome, report.kind) == ("failed", "worker_lost")
        assert b"the main thread of its worker ended" in bytes(report.detail or b"")
        assert api.results[waiting].outcome == "succeeded"


async def test_a_worker_that_is_continued_in_time_goes_on(tmp_path: Path) -> None:
    """So may one without a task stay stopped."""
    file = tmp_path / "go"
    async with (
        FakeApi(plan=ONE_WORKER).serving() as api,
        running_agent(api, tmp_path, stopped_limit=timedelta(seconds=600)) as host,
    ):
        waits = f"until test -e {file}; do sleep 0.1; done"
        (task,) = api.submit(command("/bin/sh", "-c", waits))
        host.start_lease()
        await until(lambda: api.open and host.agent.host.session and host.session.state.running)
        pool = host.session.workers.pool
        assert pool is not None
        (pid,) = pool.pids.values()
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: is_stopped(pid))
        file.touch()
        os.kill(pid, signal.SIGCONT)
        await host.done(task)
        assert (api.results[task].outcome, list(pool.pids.values())) == ("succeeded", [pid])


def test_a_process_that_its_tracer_stops_is_not_stopped() -> None:
    """Source: ptrace(2), PTRACE_TRACEME is request 0; here the tracer is this process."""
    traced = "import ctypes, os; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), 19)"
    with subprocess.Popen([sys.executable, "-c", traced]) as process:
        wait_until(lambda: stat_fields(process.pid)[:1] == [b"t"])
        assert not is_stopped(process.pid)
        process.kill()
