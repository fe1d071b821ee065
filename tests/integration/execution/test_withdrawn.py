"""Tasks that wait behind a handler in code in C, in a real worker that reads no messages meanwhile."""

import asyncio
import logging
from collections import Counter
from pathlib import Path

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import CancelOrder
from tests.support.agents import running_agent, until
from tests.support.checkout import ROOT
from tests.support.fake_api import FakeApi

MODULE = "tests.support.deaf_handlers"
FINISH = CancelOrder(kill=False, grace_seconds=0, reason="complete")


async def test_they_are_begun_by_another_worker_and_not_again_by_the_one_that_held_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mitosis.execution.session_workers")
    log, go = tmp_path / "log", tmp_path / "go"

    def notes(first: int, count: int) -> list[TaskSubmission]:
        numbers = range(first, first + count)
        return [TaskSubmission(handler=f"{MODULE}:note", arguments=[str(log), n]) for n in numbers]

    plan = WorkerAllocationPlan(worker_count=2, handler_modules=(MODULE,), python_path=(str(ROOT),))
    deaf = TaskSubmission(handler=f"{MODULE}:wait_in_c", arguments=[str(go)])
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        warm = api.submit(*notes(0, 200))
        host.start_lease()
        await host.done(*warm)
        host.session.state.mean_seconds = 1e-4  # on a busy machine nothing would be sent ahead
        stuck, *behind = api.submit(deaf, *notes(200, 40))
        await host.done(*behind)
        assert stuck in api.open
        assert "worker.tasks_withdrawn" in caplog.messages
        go.touch()
        await host.done(stuck, *api.submit(*notes(240, 40)))
        await until(lambda: not any(worker.recalled for worker in host.session.state.workers))
        api.end(FINISH)
        await asyncio.wait_for(host.lease, 30)
    assert Counter(map(int, log.read_text().split())) == Counter(range(280))
