"""An agent with as many workers as a large host has cores."""

from pathlib import Path

import psutil
import pytest

from mitosis.contracts.allocation import (
    DESCRIPTORS_OF_AGENT,
    DESCRIPTORS_PER_WORKER,
    WorkerAllocationPlan,
)
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import CancelOrder, Outcome
from tests.support.agents import running_agent, until
from tests.support.fake_api import FakeApi

FINISH = CancelOrder(kill=False, grace_seconds=0, reason="complete")


@pytest.mark.spec("S002-234", "S002-150", "S000-163")
async def test_256_workers_share_the_work_of_one_manager(tmp_path: Path) -> None:
    plan = WorkerAllocationPlan(worker_count=256)
    async with FakeApi(plan=plan).serving() as api, running_agent(api, tmp_path) as host:
        host.start_lease()
        await until(
            lambda: (
                host.agent.host.session
                and all(worker.available for worker in host.session.state.workers)
            )
        )
        ids = api.submit(*[TaskSubmission(handler="math:factorial", arguments=[3])] * 1000)
        await host.done(*ids)
        assert {report.outcome for report in api.results.values()} == {Outcome.SUCCEEDED}
        most = DESCRIPTORS_OF_AGENT + 256 * DESCRIPTORS_PER_WORKER
        pool = host.session.workers.pool
        assert pool is not None
        worker = psutil.Process(next(iter(pool.pids.values())))
        assert most <= 1024  # what many hosts allow an ordinary user
        zygote = worker.parent()
        assert zygote is not None
        assert zygote.num_fds() <= most
        assert psutil.Process().num_fds() <= most
        api.end(FINISH)
        await host.session.over.wait()
