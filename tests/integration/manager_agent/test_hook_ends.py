"""However a hook ends, nothing that it has started runs then; only what a succeeded setup leaves stays."""

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from manager_agent import hooks
from mitosis import concurrency
from mitosis.contracts.hook import HookSpec
from mitosis.execution import hook_guard, leftovers
from tests.support.agents import Commands, running_agent, until
from tests.support.fake_api import FakeApi
from tests.support.processes import living

MARK = "STARTED_BY"
TIMEOUT, ERROR = 61.0, 62.0
"""Timeouts of hooks: it is over as soon as all has started; the wait fails then."""
PARTS = 3
"""A child, a daemon, and one that starts another daemon every 20 ms."""
STARTS = """
setsid sh -c "trap '' TERM; touch daemon; while :; do sleep 60; done" &
setsid sh -c 'touch forks; while :; do setsid sleep 300 & sleep 0.02; done' &
sh -c 'touch child; exec sleep 300' &
until [ -e daemon ] && [ -e forks ] && [ -e child ]; do sleep 0.01; done
"""


class Started:
    """A hook with daemons, of which one does not end by SIGTERM, and what it has started."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.mark = uuid.uuid4().hex

    def hook(self, rest: str, timeout: float = 60.0) -> HookSpec:
        return HookSpec(
            command=("/bin/sh", "-c", f"{STARTS}{rest}"),
            environment={MARK: self.mark},
            working_directory=str(self.folder),
            timeout=timedelta(seconds=timeout),
        )

    @property
    def there(self) -> bool:
        return len([part for part in ("daemon", "forks", "child") if self._has(part)]) == PARTS

    def _has(self, part: str) -> bool:
        return (self.folder / part).exists()

    def left(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
            except psutil.Error:
                continue
        return living(found)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    monkeypatch.setattr(hooks, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(leftovers, "GRACE_SECONDS", 0.1)
    one = Started(tmp_path, monkeypatch)

    async def wait_event(event: asyncio.Event, seconds: float) -> bool:
        if seconds not in {TIMEOUT, ERROR}:
            return await concurrency.wait_event(event, seconds)
        await until(lambda: one.there)
        if seconds == ERROR:
            raise OSError("of this test")
        return False

    monkeypatch.setattr(hooks, "wait_event", wait_event)
    yield one
    hook_guard._kill_all(f"{MARK}={one.mark}".encode())


Running = asyncio.Task[hooks.HookResult]


async def to_its_end(running: Running, _: Started) -> None:
    await asyncio.wait([running])


async def cancelled(running: Running, started: Started) -> None:
    await until(lambda: started.there)
    running.cancel()
    await asyncio.wait([running])


async def cancelled_again_and_again(running: Running, started: Started) -> None:
    """The first look at the processes kills none of them."""
    looks, look = iter([False]), hook_guard.kill_found
    started.monkeypatch.setattr(
        hook_guard, "kill_found", lambda entry: next(looks, True) is False or look(entry)
    )
    await until(lambda: started.there)
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)


async def cancelled_at_its_end(running: Running, started: Started) -> None:
    """Its command has ended, one of its daemons has not yet."""
    started.monkeypatch.setattr(leftovers, "GRACE_SECONDS", 60.0)
    await until((started.folder / "ended").exists)
    await until(lambda: started.left() and len(started.left()) < PARTS)
    await cancelled(running, started)


ENDS: dict[str, tuple[str, float, Callable[[Running, Started], Awaitable[None]]]] = {
    "success": ("exit 0", 60, to_its_end),
    "failure": ("exit 3", 60, to_its_end),
    "killed": ("kill -9 $$", 60, to_its_end),
    "timeout": ("wait", TIMEOUT, to_its_end),
    "timeout without an end by SIGTERM": ("trap '' TERM; wait", TIMEOUT, to_its_end),
    "an error of the agent": ("wait", ERROR, to_its_end),
    "cancelled": ("wait", 60, cancelled),
    "cancelled_again_and_again": ("wait", 60, cancelled_again_and_again),
    "cancelled while its daemons end": ("touch ended; exit 3", 60, cancelled_at_its_end),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("setup", [True, False], ids=["setup", "teardown or probe"])
async def test_nothing_of_a_hook_runs_after_its_end(
    started: Started, setup: bool, end: str
) -> None:
    rest, timeout, awaited = ENDS[end]
    variables = {leftovers.HOOK_RUN: uuid.uuid4().hex}
    work = hooks.run_hook(started.hook(rest, timeout), variables, keeps_daemons=setup)
    await awaited(asyncio.create_task(work), started)
    assert started.there
    assert bool(started.left()) is (setup and end == "success")


async def cancel_one(started: Started) -> None:
    work = hooks.run_hook(started.hook("wait"), {leftovers.HOOK_RUN: uuid.uuid4().hex})
    running = asyncio.create_task(work)
    await cancelled(running, started)
    assert running.cancelled()


async def test_what_the_agent_cannot_kill_in_time_is_left_to_the_guard(
    started: Started, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a hook that has become another user: its process group may not be killed."""

    def refused(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(hooks, "KILL_SECONDS", -1.0)
    monkeypatch.setattr("os.killpg", refused)
    with pytest.warns(ResourceWarning, match="still running"):
        await cancel_one(started)
    assert "hook.not_killed" in caplog.messages
    await until(lambda: not started.left())


async def stop(host: Commands) -> None:
    host.stop()


async def tear_down(host: Commands) -> None:
    await host.clean()


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("setup", stop),
        ("teardown", stop),
        ("probe", stop),
        ("setup", tear_down),
        ("probe", tear_down),
    ],
)
async def test_nothing_of_a_hook_runs_when_the_agent_has_stopped_it(
    tmp_path: Path, started: Started, kind: str, end: Callable[[Commands], Awaitable[None]]
) -> None:
    true = HookSpec(command=("true",))
    api = FakeApi(setup=true)
    setattr(api, kind, started.hook("wait"))
    async with api.serving():
        async with running_agent(api, tmp_path) as host:
            work = host.prepare if kind != "teardown" else host.clean
            if kind != "setup":
                await host.prepare()
                api.epoch += 1  # the host comes back to the group
            running = asyncio.create_task(work())
            await until(lambda: started.there)
            await end(host)
            if end is tear_down:
                assert not started.left()
        running.cancel()
        assert not started.left()


MANAGER, GROUP = str(uuid.uuid4()), str(uuid.uuid4())
FIRST_THREAD_ENDS = """
import ctypes, pathlib, sys, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
pathlib.Path(sys.argv[1]).touch()
ctypes.CDLL(None).pthread_exit(None)
"""


async def swept_at_the_teardown(_: str) -> None:
    await leftovers.end_daemons(MANAGER, GROUP)


async def swept_by_the_next_agent(_: str) -> None:
    await asyncio.to_thread(leftovers.kill_leftovers, MANAGER)


async def ended_with_its_run(run: str) -> None:
    await leftovers.end_hook_run(run)


async def killed_by_the_guard(run: str) -> None:
    await asyncio.to_thread(hook_guard._kill_all, f"{leftovers.HOOK_RUN}={run}".encode())


@pytest.mark.parametrize("keeps", ["all variables", "the one of the run"])
@pytest.mark.parametrize("first_thread", ["lives", "has ended"])
@pytest.mark.parametrize(
    "finds",
    [swept_at_the_teardown, swept_by_the_next_agent, ended_with_its_run, killed_by_the_guard],
)
async def test_a_daemon_is_found(
    tmp_path: Path, finds: Callable[[str], Awaitable[None]], first_thread: str, keeps: str
) -> None:
    run = leftovers.hook_run("setup", MANAGER, GROUP)
    variables = {leftovers.HOOK_RUN: run}
    if keeps == "all variables":
        variables |= {leftovers.MANAGER: MANAGER, leftovers.GROUP: GROUP}
    there = tmp_path / "there"
    command = ["sh", "-c", f"touch {there}; exec sleep 300"]
    if first_thread == "has ended":
        command = [sys.executable, "-I", "-S", "-c", FIRST_THREAD_ENDS, str(there)]
    daemon = await asyncio.create_subprocess_exec(*command, env=variables)
    try:
        await until(there.exists)
        if first_thread == "has ended":
            await until(lambda: psutil.Process(daemon.pid).status() == psutil.STATUS_ZOMBIE)
        assert await asyncio.to_thread(leftovers.kill_leftovers, MANAGER, [GROUP]) == 0
        await finds(run)
        await asyncio.wait_for(daemon.wait(), 10)
    finally:
        if daemon.returncode is None:
            daemon.kill()
