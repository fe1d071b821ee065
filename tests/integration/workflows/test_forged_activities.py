"""Another user of the machine schedules our activities through Temporal's open port, with forged words."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.lifecycle import LeaseState
from mitosis.contracts.temporal_names import CONTROL_TASK_QUEUE
from mitosis.store.managers.views import observe_manager
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.simulated_agent import SimulatedAgent
from tests.support.waiting import wait_until_async


@pytest.fixture
async def plane(database: str, temporal_server: str) -> AsyncIterator[ControlPlane]:
    async with control_plane(database, temporal_server) as one:
        yield one


@workflow.defn
class Attack:
    """Calls one of our activities."""

    @workflow.run
    async def run(self, activity: str, argument: dict[str, Any]) -> Any:
        return await workflow.execute_activity(
            activity,
            argument,
            task_queue=CONTROL_TASK_QUEUE,
            start_to_close_timeout=timedelta(seconds=20),
        )


async def test_no_forged_reason_ends_a_lease_under_which_a_host_works(plane: ControlPlane) -> None:
    await plane.start()
    client = await plane.client()
    agent = await SimulatedAgent.register(plane.stores)
    group = await plane.stores.create_group()
    await plane.stores.submit_one(group)
    contact = asyncio.create_task(agent.keep_in_contact())
    async with agent.worker(client):

        async def working() -> bool:
            lease = (await observe_manager(plane.stores.store, agent.manager_id)).lease
            return lease is not None and lease.state is LeaseState.ACTIVE

        await wait_until_async(working, timeout=30)
        lease = (await observe_manager(plane.stores.store, agent.manager_id)).lease
        assert lease is not None
        queue = f"attack-{uuid.uuid4().hex[:8]}"
        async with Worker(
            client,
            task_queue=queue,
            workflows=[Attack],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            for reason in ReleaseReason:
                argument = {
                    "manager_id": str(agent.manager_id),
                    "epoch": lease.epoch,
                    "reason": reason.value,
                }
                answer = await client.execute_workflow(
                    Attack.run,
                    args=["release_lease", argument],
                    id=f"{queue}-{reason}",
                    task_queue=queue,
                )
                after = (await observe_manager(plane.stores.store, agent.manager_id)).lease
                assert after is not None, (reason, answer)
                assert after.epoch == lease.epoch
                assert after.state in (LeaseState.ACTIVE, LeaseState.ENDING), (reason, answer)
                assert answer["status"] == "alive"
    contact.cancel()
