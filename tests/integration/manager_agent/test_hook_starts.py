"""Hooks for which the host has no process have not run: repeated, charged to the host, owed."""

import errno
import os
from datetime import timedelta
from pathlib import Path

import pytest

from manager_agent import environments, hooks
from mitosis.contracts.control import HookVerdict
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.contracts.process_starts import PASSING_ERRORS
from mitosis.execution.leftovers import HOOK_RUN
from mitosis.retry_policy import RetryPolicy
from tests.support.agents import Commands, running_agent, until
from tests.support.fake_api import FakeApi
from tests.support.no_processes import NoProcesses


def shell(script: str) -> HookSpec:
    return HookSpec(command=("/bin/sh", "-c", script))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> NoProcesses:
    monkeypatch.setattr(hooks, "STARTS", RetryPolicy(first_seconds=0.01, longest_seconds=0.05))
    monkeypatch.setattr(hooks, "START_SECONDS", 0.3)
    return NoProcesses(monkeypatch)


def events(api: FakeApi) -> list[str]:
    return [change.event for change in api.changes]


@pytest.mark.parametrize("error", sorted(PASSING_ERRORS))
async def test_a_start_that_may_pass_is_repeated(
    tmp_path: Path, processes: NoProcesses, error: int
) -> None:
    log = tmp_path / "log"
    async with (
        FakeApi(setup=shell(f"echo setup >> {log}")).serving() as api,
        running_agent(api, tmp_path) as host,
    ):
        processes.error, processes.left = error, 3
        assert (await host.prepare()).verdict is HookVerdict.READY
        assert events(api) == ["preparing", "prepared"]
    assert len(processes.refused) == 3
    assert log.read_text() == "setup\n"


@pytest.mark.parametrize(("script", "exit_code"), [("exit 3", 3), ("exec sleep 60", None)])
async def test_a_hook_that_has_begun_runs_once_also_without_a_descriptor_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, exit_code: int | None
) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    log, timeout = tmp_path / "log", timedelta(seconds=0.5 if exit_code is None else 60)
    hook = shell(f"echo setup >> {log}; {script}").model_copy(update={"timeout": timeout})
    async with FakeApi(setup=hook).serving() as api, running_agent(api, tmp_path) as host:
        monkeypatch.setattr(os, "pidfd_open", refuse)
        assert (await host.prepare()).verdict is HookVerdict.FAILED
        monkeypatch.undo()
        (report,) = [change.hook for change in api.changes if change.event == "setup_failed"]
    assert report is not None
    assert (report.state, report.exit_code) == ("failed" if exit_code else report.state, exit_code)
    assert log.read_text() == "setup\n"


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EACCES, errno.ENOEXEC])
async def test_any_other_error_is_for_good(
    tmp_path: Path, processes: NoProcesses, error: int
) -> None:
    async with (
        FakeApi(setup=shell("true")).serving() as api,
        running_agent(api, tmp_path) as host,
    ):
        processes.error = error
        assert (await host.prepare()).verdict is HookVerdict.FAILED
        assert [change.hook.state for change in api.changes if change.hook] == [
            "running",
            "failed",
        ]
    assert len(processes.refused) == 1


async def test_a_setup_that_could_not_start_has_not_failed(
    tmp_path: Path, processes: NoProcesses
) -> None:
    async with (
        FakeApi(setup=shell("true")).serving() as api,
        running_agent(api, tmp_path) as host,
    ):
        processes.error = errno.EAGAIN
        assert (await host.prepare()).verdict is HookVerdict.FAILED, "not under this lease"
        (report,) = [change.hook for change in api.changes if change.event == "setup_failed"]
        assert report is not None
        assert report.state == "waiting"
        assert report.message == "cannot start /bin/sh: Resource temporarily unavailable"
    assert len(processes.refused) > 3


async def test_no_descriptor_for_the_output_of_a_hook_passes_too(
    tmp_path: Path, processes: NoProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    class Tail(hooks._Tail):
        def __init__(self) -> None:
            made.append(self)
            if len(made) == 2:
                raise OSError(errno.EMFILE, "Too many open files")
            super().__init__()

    monkeypatch.setattr(hooks, "_Tail", Tail)
    result = await hooks.run_hook(shell("echo ran"), {HOOK_RUN: "probe-1"})
    assert (result.succeeded, result.stdout_tail) == (True, "ran\n")


async def owing(host: Commands, api: FakeApi, processes: NoProcesses) -> None:
    """Prepare, then end the lease on a host that cannot start the teardown."""
    assert (await host.prepare()).verdict is HookVerdict.READY
    processes.error = errno.EAGAIN
    assert (await host.clean()).verdict is HookVerdict.LEASE_LOST
    assert api.environment is EnvironmentState.OWED


async def test_a_teardown_that_cannot_begin_is_owed_and_then_paid(
    tmp_path: Path, processes: NoProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        environments, "DEBTS", RetryPolicy(first_seconds=0.1, longest_seconds=0.2, jitter=0.0)
    )
    log = tmp_path / "log"
    async with (
        FakeApi(teardown=shell(f"echo teardown >> {log}")).serving() as api,
        running_agent(api, tmp_path) as host,
    ):
        await owing(host, api, processes)
        assert events(api)[-2:] == ["tear_down", "postpone"]
        report = api.changes[-1].hook
        assert report is not None
        assert (report.state, report.retry_count) == ("waiting", 1)
        assert "cannot start /bin/sh: Resource temporarily unavailable" in str(report.message)
        assert "restart of the agent" in str(report.message)
        api.owed_teardowns = True
        await until(lambda: events(api).count("postpone") >= 2)
        assert not log.exists()
        processes.error = None
        await until(lambda: api.environment is EnvironmentState.GONE)
        assert not api.degraded
    assert log.read_text() == "teardown\n"


async def test_the_pause_before_the_next_try_keeps_orders_away(
    tmp_path: Path, processes: NoProcesses
) -> None:
    async with (
        FakeApi(teardown=shell("true")).serving() as api,
        running_agent(api, tmp_path) as host,
    ):
        await owing(host, api, processes)
        tried = len(processes.refused)
        api.owed_teardowns = True
        seen = len(api.renewals)
        await until(lambda: len(api.renewals) > seen + 3)
        assert len(processes.refused) == tried


async def test_a_restart_of_the_agent_pays_at_once(tmp_path: Path, processes: NoProcesses) -> None:
    log = tmp_path / "log"
    async with FakeApi(teardown=shell(f"echo teardown >> {log}")).serving() as api:
        async with running_agent(api, tmp_path) as host:
            await owing(host, api, processes)
        processes.error = None
        api.owed = (api.task_group_id,)
        async with running_agent(api, tmp_path):
            await until(lambda: api.environment is EnvironmentState.GONE)
    assert log.read_text() == "teardown\n"
    assert not api.degraded
