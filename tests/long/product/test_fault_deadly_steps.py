"""Hooks and handler modules that end their agent: repeated a few times, then given up (protocol P9).

Real API, PostgreSQL, Temporal and agents. Each agent is started again whenever it dies.
"""

from pathlib import Path

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.lifecycle import TaskGroupResult
from mitosis.store.groups.explain import explain_group
from tests.support.fleet import Diary, Fleet, diary, it, shared_fleet
from tests.support.supervised import supervised

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

GIVEN_UP = "is given up: the agent of this host died 3 times while it ran"


def deadly(diary: Diary, name: str, *, until: Path | None = None) -> HookSpec:
    """A hook that ends its parent, the agent, unless the file exists."""
    log = f"{diary.folder}/diary"
    kill = "kill -9 $PPID; sleep 60"
    body = kill if until is None else f"test -e {until} || {{ {kill}; }}"
    return HookSpec(command=("/bin/sh", "-c", f"echo S {name} >> {log}; {body}"))


async def line_of_host(it: Fleet, group: object) -> str:
    explained = await explain_group(it.api.app_state.store, group)  # type: ignore[arg-type]
    return " ".join(host.line for host in explained.hosts)


async def test_a_teardown_that_kills_its_agent_ends_as_failed(it: Fleet, diary: Diary) -> None:
    host = await it.host(start=False)
    async with supervised(host):
        group = await it.group(diary.task("t"), environment_teardown_hook=deadly(diary, "teardown"))
        info = await it.settled(group)
        assert info.result is TaskGroupResult.TEARDOWN_DEGRADED
        *others, run = [run for run in info.hook_runs if run.kind == "teardown"]
        assert [other.state for other in others] == ["interrupted"] * 3
        assert (run.state, run.message) == ("failed", f"the teardown hook {GIVEN_UP}")
        assert diary.began("teardown") == 3
        again = await it.group(diary.task("next"), environment_setup_hook=diary.hook("setup"))
        assert (await it.settled(again)).result is TaskGroupResult.SUCCESS


async def test_a_setup_that_kills_its_agent_fails_on_that_host(it: Fleet, diary: Diary) -> None:
    """No other death of the agent repeats it; the verb does."""
    repaired = diary.folder / "repaired"
    host = await it.host(start=False)
    async with supervised(host):
        group = await it.group(
            diary.task("t"),
            environment_setup_hook=deadly(diary, "setup", until=repaired),
            environment_teardown_hook=diary.hook("teardown"),
            host_lost_after="60s",
        )
        reason = f"setup failed: the setup hook {GIVEN_UP}"

        async def given_up() -> bool:
            return reason in await line_of_host(it, group)

        await it.until(given_up)
        await it.until(lambda: diary.ended("teardown"))
        torn_down = diary.ended("teardown")
        await host.kill()
        await it.until(lambda: diary.ended("teardown") > torn_down)
        await it.until(given_up)
        assert diary.began("setup") == 3
        repaired.touch()
        await it.client.retry_setup(host.manager_id, group)
        assert (await it.settled(group)).result is TaskGroupResult.SUCCESS
    assert diary.began("setup") == 4


async def test_a_probe_that_kills_its_agent_fails_the_setup(it: Fleet, diary: Diary) -> None:
    host = await it.host(start=False)
    async with supervised(host):
        group = await it.group(
            diary.task("t", wait=True),
            environment_setup_hook=diary.hook("setup"),
            environment_probe=deadly(diary, "probe"),
        )
        await it.until(lambda: diary.began("t"))
        await host.kill()

        async def given_up() -> bool:
            return f"the probe {GIVEN_UP}" in await line_of_host(it, group)

        await it.until(given_up)
    assert (diary.began("probe"), diary.began("setup")) == (3, 1)


async def test_an_import_that_kills_the_agent_is_a_host_that_cannot_start_workers(
    it: Fleet, diary: Diary
) -> None:
    """No task has begun, so none can be charged."""
    (diary.folder / "deadly.py").write_text(
        f"import os\nopen({str(diary.folder / 'diary')!r}, 'a').write('S import\\n')\n"
        "os.kill(os.getppid(), 9)\n"
    )
    plan = WorkerAllocationPlan(
        worker_count=1, handler_modules=("deadly",), python_path=(str(diary.folder),)
    )
    host = await it.host(start=False)
    async with supervised(host):
        group = await it.group(diary.task("t"), worker_allocation_plan=plan)

        async def given_up() -> bool:
            return (
                f"could not start workers: the start of workers {GIVEN_UP}"
                in await line_of_host(it, group)
            )

        await it.until(given_up)
    assert diary.began("import") == 3
    assert diary.began("t") == 0
