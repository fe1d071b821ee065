"""A host without processes for commands: nothing fails, what runs goes on, then the lease is given up."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from mitosis.worker.process_limit import pids_folder
from tests.support.agents import running_agent, until
from tests.support.fake_api import FakeApi, command
from tests.support.full_host import FullHost, full_group

pytestmark = pytest.mark.skipif(pids_folder() is None, reason="no pids cgroup can be made")


def given_up(api: FakeApi) -> list[str]:
    return [renewal.cannot_start for renewal in api.renewals if renewal.cannot_start is not None]


async def test_commands_go_back_and_the_lease_is_given_up_when_nothing_runs(tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    script = (
        f"import os, time\nopen({str(began)!r}, 'w')\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.02)"
    )
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        await host.prepare()
        host.start_lease()
        (first,) = api.submit(command(sys.executable, "-S", "-c", script))
        await until(began.exists)
        await until(lambda: host.session.progress().workers == 2)
        pool = host.session.workers.pool
        assert pool is not None
        hosts = [FullHost(pid) for pid in pool.pids.values()]
        for each in hosts:
            each.fill()
        try:
            (second,) = api.submit(command("/bin/true", timeout_seconds=0.5))
            await until(lambda: second in api.returned)
            assert not given_up(api), "the lease covers what runs"
            assert first not in api.returned
            go.touch()
            await host.done(first)
            await until(lambda: given_up(api))
        finally:
            for each in hosts:
                each.free()
        assert "no process could be made for" in given_up(api)[0]
        assert api.results[first].outcome == "succeeded"
        assert second not in api.results
        assert not api.failures


async def test_a_host_without_processes_for_workers_names_the_limit(tmp_path: Path) -> None:
    async with FakeApi().serving() as api, running_agent(api, tmp_path) as host:
        await host.prepare()
        host.start_lease()
        await until(lambda: host.agent.host.session is not None)
        await until(lambda: host.session.progress().workers == 2)
        pool = host.session.workers.pool
        assert pool is not None
        with full_group(pool.zygote):
            for pid in [*pool.pids.values()]:
                os.kill(pid, signal.SIGKILL)
            await until(lambda: given_up(api))
        assert re.fullmatch(
            r"no worker could be started: .*Resource temporarily unavailable;"
            r" the pids cgroup \S+ has \d+ of 1 processes and threads",
            given_up(api)[0],
        )
