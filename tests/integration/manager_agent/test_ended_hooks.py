"""A hook that has ended is reported, also by the next process of the agent, and does not run again for it."""

import asyncio
import errno
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.control import HookOutcome, HookVerdict
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.lifecycle import EnvironmentState
from tests.support.agents import running_agent, until
from tests.support.fake_api import FakeApi

PATH = "/managers/environments/{group}"


class Hook:
    """A hook that writes down each of its runs and waits for its order to end."""

    def __init__(self, folder: Path, name: str, status: int) -> None:
        self.log, self.go = folder / f"{name}.log", folder / f"{name}.go"
        wait = f"until [ -e {self.go} ]; do sleep 0.02; done"
        script = f"echo run >> {self.log}; {wait}; echo no disk >&2; exit {status}"
        self.spec = HookSpec(command=("/bin/sh", "-c", script))

    @property
    def runs(self) -> int:
        return len(self.log.read_text().split()) if self.log.exists() else 0

    async def end_unheard(self, api: FakeApi) -> None:
        """End it while the API is away; return when the agent has tried to report it."""
        await until(lambda: self.runs == 1)
        api.down = True
        tried = api.calls[PATH]
        self.go.touch()
        await until(lambda: api.calls[PATH] > tried)


def owe(api: FakeApi) -> None:
    """Do what a hello does after a begun teardown, or after the loss of a host that prepares."""
    assert api.environment in (EnvironmentState.TEARING_DOWN, EnvironmentState.PREPARING)
    api.down, api.owed, api.environment = False, (api.task_group_id,), EnvironmentState.OWED


def runs_reported(api: FakeApi, *events: str) -> list[tuple[str, int | None]]:
    """Return state and exit code of the last report of each run of the hooks of some events."""
    hooks = [change.hook for change in api.changes if change.event in events]
    runs = {hook.started_at: hook for hook in hooks if hook is not None}
    return [(hook.state, hook.exit_code) for hook in runs.values()]


@contextmanager
def beside(activity: Coroutine[Any, Any, HookOutcome]) -> Iterator[None]:
    """Run an activity of the host; it is cancelled at the end."""
    running = asyncio.create_task(activity)
    yield
    running.cancel()


@pytest.mark.parametrize(("status", "state"), [(0, "succeeded"), (3, "failed")])
async def test_a_teardown_that_ended_while_the_api_was_away_does_not_run_again(
    tmp_path: Path, status: int, state: str
) -> None:
    teardown = Hook(tmp_path, "teardown", status)
    async with FakeApi(teardown=teardown.spec).serving() as api:
        async with running_agent(api, tmp_path) as host:
            assert (await host.prepare()).verdict is HookVerdict.READY
            with beside(host.clean()):
                await teardown.end_unheard(api)
        owe(api)
        async with running_agent(api, tmp_path):
            await until(lambda: api.environment is EnvironmentState.GONE)
        assert teardown.runs == 1
        assert api.degraded == bool(status)
        assert runs_reported(api, "tear_down", "cleaned") == [(state, status)]


@pytest.mark.parametrize(("status", "state"), [(0, "succeeded"), (3, "failed")])
async def test_a_setup_that_ended_while_the_api_was_away_does_not_run_again(
    tmp_path: Path, status: int, state: str
) -> None:
    setup = Hook(tmp_path, "setup", status)
    async with FakeApi(setup=setup.spec).serving() as api:
        async with running_agent(api, tmp_path) as host:
            with beside(host.prepare()):
                await setup.end_unheard(api)
        api.down = False
        async with running_agent(api, tmp_path) as host:
            outcome = await host.prepare()
        assert outcome.verdict is (HookVerdict.FAILED if status else HookVerdict.READY)
        assert outcome.message == ("exit code 3: no disk" if status else "prepared before")
        assert setup.runs == 1
        assert runs_reported(api, "preparing", "prepared", "setup_failed") == [(state, status)]


@pytest.mark.parametrize(("status", "event"), [(0, "prepared"), (3, "setup_failed")])
async def test_a_setup_that_was_not_heard_is_recorded_before_its_teardown(
    tmp_path: Path, status: int, event: str
) -> None:
    """Its lease may be lost: the API then refuses the change, and the teardown goes on."""
    setup, teardown = Hook(tmp_path, "setup", status), Hook(tmp_path, "teardown", 0)
    teardown.go.touch()
    async with FakeApi(setup=setup.spec, teardown=teardown.spec).serving() as api:
        async with running_agent(api, tmp_path) as host:
            with beside(host.prepare()):
                await setup.end_unheard(api)
        owe(api)
        async with running_agent(api, tmp_path):
            await until(lambda: api.environment is EnvironmentState.GONE)
    heard = [f"{change.event} {change.hook.exit_code}" for change in api.heard if change.hook]
    assert heard.index(f"{event} {status}") < heard.index("cleaned 0")
    assert (setup.runs, teardown.runs) == (1, 1)


async def test_a_teardown_whose_answer_was_lost_runs_again_for_the_next_setup(
    tmp_path: Path,
) -> None:
    """What the agent still has on disk is of the environment before."""
    setup, teardown = Hook(tmp_path, "setup", 0), Hook(tmp_path, "teardown", 0)
    setup.go.touch()
    async with FakeApi(setup=setup.spec, teardown=teardown.spec).serving() as api:
        async with running_agent(api, tmp_path) as host:
            assert (await host.prepare()).verdict is HookVerdict.READY
            with beside(host.clean()):
                await until(lambda: teardown.runs == 1)
                api.lose_answers[PATH] = 1_000
                teardown.go.touch()
                await until(lambda: api.environment is EnvironmentState.GONE)
        api.lose_answers.clear()
        setup.go.unlink()
        async with running_agent(api, tmp_path) as host:
            with beside(host.prepare()):
                await until(lambda: setup.runs == 2)
        owe(api)
        async with running_agent(api, tmp_path):
            await until(lambda: api.environment is EnvironmentState.GONE)
    assert teardown.runs == 2


async def test_a_setup_that_was_not_heard_is_probed_before_it_is_believed(tmp_path: Path) -> None:
    setup = Hook(tmp_path, "setup", 0)
    probe = HookSpec(command=("/bin/sh", "-c", f"echo probe >> {setup.log}; exit 1"))
    async with FakeApi(setup=setup.spec, probe=probe).serving() as api:
        async with running_agent(api, tmp_path) as host:
            with beside(host.prepare()):
                await setup.end_unheard(api)
        api.down = False
        async with running_agent(api, tmp_path) as host:
            assert (await host.prepare()).verdict is HookVerdict.READY
    assert setup.log.read_text().split() == ["run", "probe", "run"]


async def test_what_cannot_be_read_is_run_again(tmp_path: Path) -> None:
    teardown = Hook(tmp_path, "teardown", 0)
    async with FakeApi(teardown=teardown.spec).serving() as api:
        async with running_agent(api, tmp_path) as host:
            assert (await host.prepare()).verdict is HookVerdict.READY
            with beside(host.clean()):
                await teardown.end_unheard(api)
        (tmp_path / "state" / "ended_hooks" / f"{api.task_group_id}.json").write_text("{")
        owe(api)
        async with running_agent(api, tmp_path):
            await until(lambda: api.environment is EnvironmentState.GONE)
    assert teardown.runs == 2


async def test_a_teardown_on_a_full_disk_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    teardown = Hook(tmp_path, "teardown", 0)
    teardown.go.touch()
    async with (
        FakeApi(teardown=teardown.spec).serving() as api,
        running_agent(api, tmp_path) as host,
    ):
        assert (await host.prepare()).verdict is HookVerdict.READY
        monkeypatch.setattr("manager_agent.ended_hooks.write_durably", full)
        assert (await host.clean()).verdict is HookVerdict.CLEANED
    assert teardown.runs == 1
    assert api.environment is EnvironmentState.GONE
