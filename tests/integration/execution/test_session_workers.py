"""Zygotes that die under their workers, and workers that lose their connection."""

import asyncio
import logging
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.lifecycle import WorkerState
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import CancelOrder
from mitosis.execution import leftovers, session_workers
from mitosis.execution.pool import Pool
from mitosis.execution.session import Session
from mitosis.ipc.messages import TaskStarted, WorkerToManager
from mitosis.retry_policy import RetryPolicy
from tests.support.agents import Commands, running_agent, until
from tests.support.checkout import ROOT
from tests.support.fake_api import FakeApi, command
from tests.support.processes import living, with_pids

FINISH = CancelOrder(kill=False, grace_seconds=0, reason="complete")


def pool_of(host: Commands) -> Pool:
    pool = host.session.workers.pool
    assert pool is not None
    return pool


async def test_a_zygote_that_dies_is_started_again(tmp_path: Path) -> None:
    async with FakeApi(retries=1).serving() as api, running_agent(api, tmp_path) as host:
        once = tmp_path / "once"
        script = f"if [ -e {once} ]; then exit 0; fi; touch {once}; sleep 60"
        (task_id,) = api.submit(command("/bin/sh", "-c", script))
        host.start_lease()
        await until(once.exists)
        os.kill(pool_of(host)._pid, signal.SIGKILL)
        await host.done(task_id)
        assert api.failures[0].kind == "workers_lost"
        assert "killed by SIGKILL" in bytes(api.failures[0].detail).decode()
        assert api.results[task_id].outcome == "succeeded"
        api.end(FINISH)
        await asyncio.wait_for(host.lease, 30)


async def test_what_ran_under_a_dead_zygote_is_known_although_its_start_was_never_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a task that kills its zygote at once would run again, uncharged, without end."""
    heard = Session.on_message

    def deaf(self: Session, slot: int, generation: int, message: WorkerToManager) -> None:
        if not isinstance(message, TaskStarted):
            heard(self, slot, generation, message)

    monkeypatch.setattr(Session, "on_message", deaf)
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        began = tmp_path / "began"
        (task_id,) = api.submit(command("/bin/sh", "-c", f"touch {began}; sleep 60"))
        host.start_lease()
        await until(began.exists)
        os.kill(pool_of(host)._pid, signal.SIGKILL)
        await host.done(task_id)
        assert (api.results[task_id].kind, api.results[task_id].attempt) == ("workers_lost", 1)
        api.end(FINISH)
        await asyncio.wait_for(host.lease, 30)


async def test_a_worker_that_died_before_its_zygote_is_a_crash_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit was known and waited for its last messages when the zygote ended."""
    monkeypatch.setattr(session_workers, "LAST_MESSAGES_SECONDS", 60.0)
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        began = [tmp_path / f"began-{number}" for number in range(2)]
        tasks = api.submit(*(command("/bin/sh", "-c", f"touch {b}; sleep 60") for b in began))
        host.start_lease()
        await until(lambda: all(one.exists() for one in began))
        pool, workers = pool_of(host), host.session.state.workers
        slot = next(w.slot for w in workers if w.running == AttemptKey(tasks[0], 1))
        os.kill(pool.pids[slot, workers[slot].generation], signal.SIGKILL)
        await until(lambda: len(pool.pids) == 1)
        os.kill(pool.zygote, signal.SIGKILL)
        await host.done(*tasks)
        assert [api.results[task].kind for task in tasks] == ["worker_lost", "workers_lost"]
        api.end(FINISH)
        await asyncio.wait_for(host.lease, 30)


async def test_zygotes_that_die_again_and_again_are_started_after_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = RetryPolicy(first_seconds=0.1, longest_seconds=0.2, jitter=0.0)
    monkeypatch.setattr(session_workers, "POOL_RETRIES", pauses)
    monkeypatch.setattr(session_workers, "MOST_DEATHS", 5)
    caplog.set_level(logging.INFO, session_workers.__name__)
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:

        def said(event: str) -> list[logging.LogRecord]:
            return [record for record in caplog.records if record.getMessage() == event]

        def started(count: int) -> bool:
            return len(said("workers.starting")) >= count

        host.start_lease()
        await until(partial(started, 1))
        make, made = host.session.workers._make_pool, []

        def noted(preload: bool) -> Pool:
            made.append(time.time())
            return make(preload)

        host.session.workers._make_pool = noted
        for number in range(5):
            await until(partial(started, number + 1))
            await until(
                lambda: all(w.phase is WorkerState.IDLE for w in host.session.state.workers)
            )
            os.kill(pool_of(host)._pid, signal.SIGKILL)
        await until(lambda: said("work.given_up"))
        died = [record.created for record in said("zygote.died")]
        waited = [start - end + 0.01 for start, end in zip(made, died[:4], strict=True)]
        assert [vars(one)["pause_seconds"] for one in said("zygote.died")] == [
            0,
            0.1,
            0.2,
            0.2,
            0.2,
        ]
        assert all(w >= p for w, p in zip(waited, (0, 0.1, 0.2, 0.2), strict=True)), waited
        (given_up,) = said("work.given_up")
        assert "5 zygotes in a row ended soon: killed by SIGKILL" in vars(given_up)["reason"]
        api.end(FINISH)
        await asyncio.wait_for(host.lease, 30)


async def test_a_worker_that_outlives_its_zygote_is_ended_before_its_task_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handler is in code in C that never returns, so it cannot act on the SIGTERM of the kernel."""
    monkeypatch.setattr(leftovers, "GRACE_SECONDS", 0.3)
    note = tmp_path / "note"
    module = "tests.support.lost_signals"
    plan = WorkerAllocationPlan(worker_count=1, handler_modules=(module,), python_path=(str(ROOT),))
    stuck = TaskSubmission(handler=f"{module}:sleep_unreachable", arguments=[str(note)])
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        (task_id,) = api.submit(stuck)
        host.start_lease()
        await until(lambda: note.exists() and len(note.read_text().split()) == 2)
        below = with_pids(map(int, note.read_text().split()))
        os.kill(pool_of(host)._pid, signal.SIGKILL)
        await host.done(task_id)
        assert api.results[task_id].kind == "workers_lost"
        assert (len(below), living(below)) == (2, [])
        api.end(FINISH)
        await asyncio.wait_for(host.lease, 30)


async def test_a_worker_whose_descriptors_its_handler_has_closed_reports_over_another_connection(
    tmp_path: Path,
) -> None:
    module = "tests.support.leaks"
    plan = WorkerAllocationPlan(worker_count=1, handler_modules=(module,), python_path=(str(ROOT),))
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        closing = TaskSubmission(handler=f"{module}:leak", arguments=[["closed all"]])
        task_ids = api.submit(closing, command("/bin/true"), closing)
        host.start_lease()
        await host.done(*task_ids)
        assert [api.results[task].outcome for task in task_ids] == ["succeeded"] * 3
        assert not api.failures
