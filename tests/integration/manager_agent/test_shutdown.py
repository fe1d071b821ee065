"""A stop in order: what runs gets its grace, as far as the host gives one, and the stop ends in time."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from tests.support.agents import running_agent, until
from tests.support.fake_api import FakeApi, command

SAVES = "trap 'sleep 0.2; touch saved; exit 0' TERM; touch up; while :; do sleep 0.02; done"


@pytest.mark.parametrize(
    ("wanted", "longest", "saved", "cut"),
    [
        (30.0, 20.0, True, True),
        (20.0, 30.0, True, False),
        (30.0, 0.0, False, True),
        (0.0, 30.0, False, False),
    ],
)
async def test_a_running_task_gets_the_grace_of_its_group_up_to_the_longest_of_the_host(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    wanted: float,
    longest: float,
    saved: bool,
    cut: bool,
) -> None:
    api = FakeApi(plan=WorkerAllocationPlan(worker_count=1))
    api.grace_seconds = wanted
    times: dict[str, Any] = {"drain": timedelta(0), "stop_grace": timedelta(seconds=longest)}
    async with api.serving(), running_agent(api, tmp_path, **times) as host:
        api.submit(command("/bin/sh", "-c", SAVES, working_directory=str(tmp_path)))
        host.start_lease()
        await until((tmp_path / "up").exists)
        await until(lambda: host.session.state.running == 1)
        host.stop()
        await host.session.over.wait()
        assert (tmp_path / "saved").exists() is saved
    found = [record.__dict__ for record in caplog.records if record.getMessage() == "grace.cut"]
    given = [(one["running"], one["wanted_seconds"], one["given_seconds"]) for one in found]
    assert given == ([(1, wanted, longest)] if cut else [])
