"""A lease on a host, with real worker processes: tasks in, results out, endings."""

from pathlib import Path

import pytest

from mitosis.contracts.control import HookVerdict, LeaseEnd
from mitosis.contracts.wire import CancelOrder
from tests.support.agent_api import AgentApi, command
from tests.support.agents import running_agent


@pytest.mark.spec("S002-128")
async def test_one_command_through_zygote_and_worker(tmp_path: Path) -> None:
    async with AgentApi().serving() as api, running_agent(api, tmp_path) as host:
        (task_id,) = api.submit(command("/bin/true"))
        assert (await host.prepare()).verdict is HookVerdict.READY
        lease = host.start_lease()
        await host.done(task_id)
        assert api.results[task_id].outcome == "succeeded"
        assert api.results[task_id].exit_code == 0
        api.end(CancelOrder(kill=False, grace_seconds=0, reason="complete"))
        assert (await lease).end is LeaseEnd.ENDING
