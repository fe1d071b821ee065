"""Other people's workflows and workers beside ours."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from temporalio.client import WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from mitosis.contracts.control import Close, GroupSummary
from mitosis.contracts.lifecycle import TaskGroupResult, TaskGroupState
from mitosis.contracts.temporal_names import task_group_workflow_id
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.their_workflow import TheirCampaign
from tests.support.waiting import wait_until_async
from tests.workflow.servers import STRICT
from workflows.plugin import MitosisPlugin

THEIR_QUEUE = "their-queue"
Theirs = WorkflowHandle[TheirCampaign, GroupSummary]


@pytest.fixture
async def plane(database: str, temporal_server: str) -> AsyncIterator[ControlPlane]:
    async with control_plane(database, temporal_server) as one:
        await one.start()
        yield one


async def start_theirs(plane: ControlPlane, group: UUID) -> tuple[Worker, Theirs]:
    client = await plane.where.connect(MitosisPlugin(policy=STRICT))
    worker = Worker(client, task_queue=THEIR_QUEUE, workflows=[TheirCampaign])
    handle = await client.start_workflow(
        TheirCampaign.run, group, id=f"theirs-{uuid4()}", task_queue=THEIR_QUEUE
    )
    return worker, handle


async def child_of_theirs(plane: ControlPlane, group: UUID, theirs: Theirs) -> bool:
    """Whether the group's workflow runs as a child of theirs by now."""
    client = await plane.client()
    described = await client.get_workflow_handle(task_group_workflow_id(group)).describe()
    return described.parent_id == theirs.id


async def test_another_teams_workflow_waits_for_a_group(plane: ControlPlane) -> None:
    group = await plane.stores.create_group()
    await wait_until_async(plane.stores.outbox_is_empty)  # its workflow runs already
    worker, theirs = await start_theirs(plane, group)
    async with worker:
        await wait_until_async(lambda: child_of_theirs(plane, group, theirs))
        await (await plane.control()).execute_verb(group, Close())
        summary = await asyncio.wait_for(theirs.result(), 20)
    assert summary.task_group_id == group
    assert summary.state is TaskGroupState.COMPLETE
    assert summary.result is TaskGroupResult.SUCCESS


async def test_cancelling_their_workflow_cancels_the_group(plane: ControlPlane) -> None:
    group = await plane.stores.create_group()
    await plane.stores.submit_one(group)
    worker, theirs = await start_theirs(plane, group)
    async with worker:
        await wait_until_async(lambda: child_of_theirs(plane, group, theirs))
        await theirs.cancel()
        summary = await asyncio.wait_for(theirs.result(), 20)
    assert summary.result is TaskGroupResult.CANCELLED
    assert (await plane.stores.observe(group)).settled


async def test_cancelling_their_workflow_before_the_child_has_started_cancels_the_group(
    plane: ControlPlane,
) -> None:
    group = await plane.stores.create_group()
    await plane.stores.submit_one(group)
    worker, theirs = await start_theirs(plane, group)
    await theirs.cancel()  # arrives with the start: their worker does not poll yet
    async with worker:
        summary = await asyncio.wait_for(theirs.result(), 20)
    assert summary.result is TaskGroupResult.CANCELLED


async def test_the_plugin_leaves_a_foreign_runner_alone(plane: ControlPlane) -> None:
    """It adds to what others chose and replaces nothing."""
    client = await plane.where.connect(MitosisPlugin())
    runner = UnsandboxedWorkflowRunner()
    worker = Worker(
        client, task_queue=THEIR_QUEUE, workflows=[TheirCampaign], workflow_runner=runner
    )
    assert worker.config(active_config=True)["workflow_runner"] is runner
