"""Hosts that die, come back soon or late, are copied, or are wanted no more; kills while a hook runs.

Real API, PostgreSQL, Temporal and agents; kill -9 at a moment that the test holds open (protocol P4, P5, P9).
"""

import os
import signal
from uuid import UUID

import psutil
import pytest

from manager_agent.process import EXIT_DO_NOT_RESTART
from mitosis.contracts.http import TaskGroupUpdate
from mitosis.contracts.lifecycle import TaskGroupResult
from tests.support.fleet import Diary, Fleet, FleetHost, diary, it, shared_fleet
from tests.support.processes import descendants, living

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

CLAIM, REPORT = "/managers/tasks/claim", "/managers/tasks/report"


async def lost(it: Fleet, host: FleetHost) -> None:
    async def is_lost() -> bool:
        view = await host.view()
        return view.lease is None and not view.online

    await it.until(is_lost)


@pytest.mark.spec("S002-141", "S000-91", "S000-92", "S002-268", "S002-263")
async def test_an_agent_restarted_within_the_clock_goes_on_at_once(it: Fleet, diary: Diary) -> None:
    """Its hello requeues what it ran; no clock is waited for, the environment still stands."""
    host = await it.host()
    group = await it.group(
        diary.task("t", wait=True),
        workers=1,
        host_lost_after="60s",
        environment_setup_hook=diary.hook("setup"),
        environment_teardown_hook=diary.hook("teardown"),
    )
    await it.until(lambda: diary.began("t"))
    await host.kill()
    await host.start()
    await it.until(lambda: diary.began("t") == 2)
    diary.go("t")
    info = await it.settled(group)
    assert (info.tasks_succeeded, await it.attempts(group)) == (1, [2])
    assert (diary.began("setup"), diary.ended("teardown")) == (1, 1)


async def test_an_agent_restarted_after_the_clock_first_cleans_what_it_owes(
    it: Fleet, diary: Diary
) -> None:
    host = await it.host()
    hooks = {
        "environment_setup_hook": diary.hook("setup"),
        "environment_teardown_hook": diary.hook("teardown"),
    }
    group = await it.group(diary.task("t", wait=True), workers=1, **hooks)
    await it.until(lambda: diary.began("t"))
    await host.kill()
    await lost(it, host)
    assert diary.lines() == ["S setup", "E setup", "S t"]
    await host.start()
    await it.until(lambda: diary.began("t") == 2)
    again = ["S teardown", "E teardown", "S setup", "E setup", "S t"]
    assert diary.lines()[3:] == again, "owed teardown, then a new setup, then the task"
    diary.go("t")
    info = await it.settled(group)
    assert (info.tasks_succeeded, await it.attempts(group)) == (1, [2])
    assert info.result is TaskGroupResult.SUCCESS


async def test_a_host_that_was_stopped_in_order_holds_up_no_group(it: Fleet, diary: Diary) -> None:
    """It is given as long to come back and clean up as one that was killed."""
    host = await it.host()
    group = await it.group(diary.task("t"), environment_teardown_hook=diary.hook("teardown"))
    await it.until(lambda: diary.ended("t"))
    assert await host.stop() == 0
    await it.client.close_group(group)
    info = await it.client.wait(group)
    assert (info.result, info.tasks_succeeded) == (TaskGroupResult.TEARDOWN_DEGRADED, 1)
    await host.start()
    await it.until(lambda: diary.ended("teardown"))


async def test_a_copied_agent_neither_runs_nor_ends_what_the_first_one_runs(
    it: Fleet, diary: Diary
) -> None:
    """Two machines with one identity: who is in contact keeps it, the other exits for good."""
    host = await it.host()
    group = await it.group(diary.task("t", wait=True), workers=1)
    await it.until(lambda: diary.began("t"))
    copy = await it.copy_of(host)
    await copy.begin()
    assert await copy.ended() == EXIT_DO_NOT_RESTART
    diary.go("t")
    info = await it.settled(group)
    assert (info.tasks_succeeded, await it.attempts(group), diary.began("t")) == (1, [1], 1)
    await host.kill()

    async def silent() -> bool:
        return not (
            await it.rows(
                "SELECT 1 FROM managers JOIN manager_live ON id = manager_id WHERE"
                " last_contact_at > now() - interval '2 s'"
            )
        )

    await it.until(silent)
    await copy.start()
    await host.begin()
    assert await host.ended() == EXIT_DO_NOT_RESTART, "now the other one has it"


@pytest.mark.parametrize("call", [CLAIM, REPORT])
async def test_an_agent_killed_between_commit_and_answer(
    it: Fleet, diary: Diary, call: str
) -> None:
    """What was claimed for the dead runs once; what was reported, and not acknowledged, not again."""
    host = await it.host()
    group = await it.group(diary.task("first"), workers=1, host_lost_after="60s")
    await it.until(lambda: host.wire.answered[f"/api/v1{REPORT}"])
    await it.until(lambda: not in_journal(host))
    host.wire.hold_answers(call)
    await it.client.submit(group, [diary.task("t")])
    await it.until(lambda: host.wire.holding[call])
    if call == REPORT:
        await it.until(lambda: in_journal(host))
    await host.kill()
    host.wire.let_go(call)
    await host.start()
    info = await it.settled(group)
    assert info.tasks_succeeded == 2
    assert (diary.began("t"), diary.ended("t")) == (1, 1)
    assert await it.attempts(group) == ([1, 2] if call == CLAIM else [1, 1])
    assert host.said("journal.replayed") == (call == REPORT)


@pytest.mark.spec("S002-250", "S002-69")
async def test_max_managers_is_raised_and_lowered_under_live_leases(
    it: Fleet, diary: Diary
) -> None:
    """More hosts come at once; with fewer the last one finishes what runs on it and gets no other lease."""
    first, second = await it.host(), await it.host()
    names = [f"t{n}" for n in range(6)]
    group = await it.group(
        *[diary.task(name, wait=True) for name in names],
        workers=1,
        max_managers=1,
        host_lost_after="60s",  # a busy machine may keep the first host silent for 2 s
    )

    async def leases() -> int:
        return len(await it.rows("SELECT 1 FROM leases WHERE state = 'active'"))

    async def running(count: int) -> None:
        await it.until(lambda: sum(diary.began(n) - diary.ended(n) for n in names) == count)

    await running(1)
    assert await leases() == 1
    await it.client.update_group(group, TaskGroupUpdate(max_managers=2))
    await running(2)
    await it.client.update_group(group, TaskGroupUpdate(max_managers=1))

    async def one_is_ending() -> bool:
        return await it.rows("SELECT 1 FROM leases WHERE state = 'ending'") != []

    await it.until(one_is_ending)
    assert sum(diary.began(n) - diary.ended(n) for n in names) == 2, "what runs there goes on"
    diary.go(*names)
    info = await it.settled(group)
    assert info.tasks_succeeded == 6
    assert [diary.began(n) for n in names] == [1] * 6
    assert len(await it.rows("SELECT 1 FROM leases")) == 2, "the second host got no other lease"
    assert first.said("session.over") == second.said("session.over") == 1


def in_journal(host: FleetHost) -> bool:
    """Is there a report that has not been acknowledged, or was a moment ago?"""
    return (host.folder / "state/journal").read_bytes().startswith(b"MJ01")


async def kill_agent(it: Fleet, host: FleetHost) -> None:
    below = descendants(_pid(host))
    await host.kill()
    await it.until(lambda: not living(below))
    await host.start()


async def kill_hook(it: Fleet, host: FleetHost) -> None:
    [hook] = [p for p in psutil.Process(_pid(host)).children() if p.name() == "sh"]
    os.kill(hook.pid, signal.SIGKILL)


def _pid(host: FleetHost) -> int:
    assert host.process is not None
    return host.process.pid


@pytest.mark.spec("S000-96")
async def test_an_agent_killed_in_a_setup_hook_runs_it_again(it: Fleet, diary: Diary) -> None:
    host, group = await _in_hook(it, diary, "setup")
    await kill_agent(it, host)
    await it.until(lambda: diary.began("setup") == 2)
    diary.go("setup", "teardown")
    info = await it.settled(group)
    assert info.result is TaskGroupResult.SUCCESS
    states = [run.state for run in info.hook_runs if run.kind == "setup"]
    assert states == ["interrupted", "succeeded"], "each run is listed"
    assert diary.lines()[1:] == ["S setup", "E setup", "S t", "E t", "S teardown", "E teardown"]


async def test_an_agent_killed_in_a_teardown_hook_runs_it_again(it: Fleet, diary: Diary) -> None:
    host, group = await _in_hook(it, diary, "teardown")
    await kill_agent(it, host)
    await it.until(lambda: diary.began("teardown") == 2)
    diary.go("teardown")
    info = await it.client.wait(group)
    assert info.result is TaskGroupResult.SUCCESS, "it waits for what a host in contact owes"
    states = [run.state for run in info.hook_runs if run.kind == "teardown"]
    assert states == ["interrupted", "succeeded"], "each run is listed"
    assert (diary.began("setup"), diary.began("t"), diary.ended("teardown")) == (1, 1, 1)


async def test_an_agent_killed_around_a_probe_runs_it_once_in_each_life(
    it: Fleet, diary: Diary
) -> None:
    """Before, during and after the probe. Setup has succeeded, and is not repeated."""
    host = await it.host()
    group = await it.group(
        diary.task("t", wait=True),
        workers=1,
        host_lost_after="60s",
        environment_setup_hook=diary.hook("setup"),
        environment_probe=diary.hook("probe", wait=True),
    )
    await it.until(lambda: diary.began("t"))
    assert diary.began("probe") == 0, "a setup that has just succeeded is believed"
    await host.kill()
    host.wire.hold_answers("/managers/hello")
    await host.begin()
    await it.until(lambda: host.wire.holding["/managers/hello"])
    await host.kill()
    host.wire.let_go("/managers/hello")
    await host.start()
    await it.until(lambda: diary.began("probe") == 1)
    await kill_agent(it, host)
    await it.until(lambda: diary.began("probe") == 2)
    assert diary.began("t") == 1
    diary.go("probe")
    await it.until(lambda: diary.began("t") == 2)
    await kill_agent(it, host)
    await it.until(lambda: diary.began("t") == 3)
    diary.go("t")
    info = await it.settled(group)
    assert info.result is TaskGroupResult.SUCCESS
    assert (diary.began("setup"), diary.began("probe"), diary.ended("probe")) == (1, 3, 2)


async def test_a_group_cancelled_in_its_setup_hook_does_not_wait_for_it(
    it: Fleet, diary: Diary
) -> None:
    host, group = await _in_hook(it, diary, "setup")
    diary.go("teardown")
    await it.client.cancel(group)
    info = await it.client.wait(group)
    assert info.result is TaskGroupResult.CANCELLED
    assert diary.lines() == ["S setup", "S teardown", "E teardown"]
    assert host.said("worker.ready") == 0
    assert await it.rows("SELECT state FROM environments") == [{"state": "gone"}]


async def test_a_killed_setup_hook_has_failed_and_its_host_gives_way(
    it: Fleet, diary: Diary
) -> None:
    host, group = await _in_hook(it, diary, "setup")
    await kill_hook(it, host)

    async def given_back() -> bool:
        return (await host.view()).lease is None

    await it.until(given_back)
    [run] = await it.rows("SELECT state, signal FROM hook_runs WHERE kind = 'setup'")
    assert (run["state"], run["signal"]) == ("failed", signal.SIGKILL)
    other = await it.host()
    diary.go("setup", "teardown")
    info = await it.settled(group)
    assert (info.tasks_succeeded, diary.began("t")) == (1, 1)
    assert other.said("session.over") == 1


async def test_a_killed_teardown_hook_leaves_the_group_settled_and_says_so(
    it: Fleet, diary: Diary
) -> None:
    host, group = await _in_hook(it, diary, "teardown")
    await kill_hook(it, host)
    info = await it.client.wait(group)
    assert info.result is TaskGroupResult.TEARDOWN_DEGRADED
    [run] = await it.rows("SELECT state, signal FROM hook_runs WHERE kind = 'teardown'")
    assert (run["state"], run["signal"]) == ("failed", signal.SIGKILL)
    assert await it.rows("SELECT state, degraded FROM environments") == [
        {"state": "gone", "degraded": True}
    ]


async def _in_hook(it: Fleet, diary: Diary, kind: str) -> tuple[FleetHost, UUID]:
    """A host that is in this hook of a group with one task."""
    host = await it.host()
    group = await it.group(
        diary.task("t"),
        workers=1,
        host_lost_after="60s",
        environment_setup_hook=diary.hook("setup", wait=kind == "setup"),
        environment_teardown_hook=diary.hook("teardown", wait=True),
    )
    if kind == "teardown":
        await it.until(lambda: diary.ended("t"))
        await it.client.close_group(group)
    await it.until(lambda: diary.began(kind))
    return host, group
