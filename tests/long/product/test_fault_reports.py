"""Reports that are refused or late, and attempts whose end no longer counts (protocol P5).

Real API, PostgreSQL, Temporal and agents; a wire of the test in between.
"""

import os
import signal
from pathlib import Path

import pytest

from api.routes import agents
from manager_agent.process import EXIT_DO_NOT_RESTART
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.lifecycle import TaskGroupResult
from mitosis.contracts.task import TaskSubmission
from tests.support.checkout import ROOT
from tests.support.fleet import Diary, Fleet, FleetHost, diary, it, shared_fleet
from tests.support.processes import living, with_pids

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

REPORT = "/managers/tasks/report"
LIMIT = 50_000
"""The largest body of reports in bytes: seven results of 6,500 characters."""


def gives(size: int) -> TaskSubmission:
    return TaskSubmission(
        handler="tests.support.sample_handlers:give", arguments={"value": "x" * size}
    )


def in_journal(host: FleetHost) -> int:
    return (host.folder / "state/journal").read_bytes().count(b"MJ01")


def endless_at_first(diary: Diary) -> TaskSubmission:
    """A task that writes its pid; the first attempt ends at SIGTERM only, the second one at once."""
    pids = f"{diary.folder}/pids"
    script = f"echo $$ >> {pids}; [ $(wc -l < {pids}) -gt 1 ] || exec sleep 600"
    return TaskSubmission(command=["/bin/sh", "-c", script])


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def lose(it: Fleet, host: FleetHost) -> None:
    """Stop the agent process until the host counts as lost; its workers go on."""
    assert host.process is not None
    os.kill(host.process.pid, signal.SIGSTOP)

    async def gone() -> bool:
        view = await host.view()
        return view.lease is None and not view.online

    await it.until(gone)


def wake_up(host: FleetHost) -> None:
    assert host.process is not None
    os.kill(host.process.pid, signal.SIGCONT)


async def test_results_that_are_too_large_together_survive_a_kill_and_one_alone_ends_its_task(
    it: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API never takes the journal as a whole, nor one report of it; hello does not wait for that."""
    monkeypatch.setattr(agents, "REPORT_LIMIT", 100)  # nothing gets through before the kill
    host = await it.host()
    plan = WorkerAllocationPlan(worker_count=2, task_prefetch_count=1, python_path=(str(ROOT),))
    group = await it.group(worker_allocation_plan=plan, host_lost_after="60s")
    await it.client.submit(group, [gives(6_500) for _ in range(16)] + [gives(LIMIT)])
    await it.until(lambda: in_journal(host) == 17)
    await host.kill()
    monkeypatch.setattr(agents, "REPORT_LIMIT", LIMIT)
    host.wire.hold_answers(REPORT)
    await host.start()  # waits for the answer to its hello, which comes while every report is held
    await it.until(lambda: host.wire.holding[REPORT])
    assert await it.rows("SELECT 1 FROM open_task WHERE state <> 1") == [], "none is run again"
    host.wire.let_go(REPORT)
    info = await it.settled(group)
    assert (info.tasks_succeeded, info.tasks_failed) == (16, 1)
    assert await it.attempts(group) == [1] * 17
    (refused,) = [task async for task in it.client.tasks(group) if task.state == "failed"]
    shown = await it.client.task(refused.task_uuid)
    assert shown.kind == "result_refused"
    assert "the body may have 50000 bytes" in str(shown.detail)


async def change_token_version(it: Fleet, step: int) -> None:
    """Revoke the tokens of hosts, or make the former ones valid again; at once, not when a cache expires."""
    await it.rows("UPDATE managers SET token_version = token_version + %s", step)
    it.api.app_state.store.manager_token_versions.clear()


async def test_an_agent_whose_token_is_revoked_exits_for_good_and_keeps_its_journal(
    it: Fleet, diary: Diary
) -> None:
    host = await it.host()
    host.wire.hold_answers(REPORT)
    group = await it.group(diary.task("t", wait=True), host_lost_after="60s")
    await it.until(lambda: diary.began("t"))
    host.wire.cut()
    diary.go("t")
    await it.until(lambda: in_journal(host))
    await host.kill()
    host.wire.mend()
    await change_token_version(it, 1)
    await host.begin()
    assert await host.ended() == EXIT_DO_NOT_RESTART
    assert in_journal(host) == 1
    assert host.said("agent.refused") == 1
    await change_token_version(it, -1)  # a later token
    host.wire.let_go(REPORT)
    await host.start()
    info = await it.settled(group)
    assert (info.tasks_succeeded, diary.began("t"), await it.attempts(group)) == (1, 1, [1])


async def test_a_result_in_the_journal_counts_after_a_cancel_that_lets_tasks_finish(
    it: Fleet, diary: Diary
) -> None:
    """The restarted agent gets a lease that is ending, for its report alone."""
    host = await it.host()
    group = await it.group(diary.task("t", wait=True), host_lost_after="60s")
    await it.until(lambda: diary.began("t"))
    host.wire.cut()
    diary.go("t")
    await it.until(lambda: in_journal(host))
    await host.kill()
    await it.client.cancel(group, cancel_running_tasks=False)
    host.wire.mend()
    host.wire.hold_answers(REPORT)
    await host.start()
    await it.until(lambda: host.wire.holding[REPORT])
    host.wire.let_go(REPORT)
    info = await it.client.wait(group)
    assert info.result is TaskGroupResult.CANCELLED
    assert (info.tasks_succeeded, diary.began("t")) == (1, 1)


@pytest.mark.parametrize("fate", ["ended elsewhere", "cancelled"])
async def test_an_attempt_that_no_longer_counts_is_stopped_and_its_host_is_free(
    it: Fleet, diary: Diary, fate: str
) -> None:
    host = await it.host()
    group = await it.group(endless_at_first(diary), workers=1)
    await it.until(lambda: pids(diary.folder))
    first = with_pids(pids(diary.folder))
    await lose(it, host)
    if fate == "cancelled":
        await it.client.cancel(group)
    else:
        other = await it.host()
        await it.client.close_group(group)
        await it.until(lambda: other.said("session.over"))
        await other.kill()
    assert living(first)
    following = await it.group(diary.task("next"), workers=1)
    wake_up(host)
    await it.until(lambda: diary.ended("next"), 10)
    assert not living(first)
    assert (await it.settled(following)).tasks_succeeded == 1
    info = await it.client.wait(group)
    assert (info.tasks_succeeded, info.tasks_cancelled) == (
        (0, 1) if fate == "cancelled" else (1, 0)
    )
