"""A host activity ends while a workflow task asks for its check: on a real server the workflow goes on."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from mitosis.contracts.control import Complete, ManagerView
from mitosis.contracts.lifecycle import LeaseState, TaskGroupResult
from mitosis.contracts.temporal_names import manager_workflow_id
from mitosis.store.control.control_store import ControlStore
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.simulated_agent import SimulatedAgent
from tests.support.waiting import wait_until_async


@pytest.fixture
async def plane(database: str, temporal_server: str) -> AsyncIterator[ControlPlane]:
    async with control_plane(database, temporal_server) as one:
        yield one


async def test_an_activity_may_end_while_the_workflow_asks_for_its_check(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The activity sees the end of the lease, and ends, while the workflow observes that end."""
    client = await plane.client()
    observe, crossed = ControlStore.observe_manager, asyncio.Event()

    async def nothing_runs(manager_id: UUID) -> bool:
        described = await client.get_workflow_handle(manager_workflow_id(manager_id)).describe()
        return not described.raw_description.pending_activities

    async def observe_late(self: ControlStore, manager_id: UUID) -> ManagerView:
        view = await observe(self, manager_id)
        if view.lease and view.lease.state is LeaseState.ENDING and not crossed.is_set():
            agent.api_reachable.set()
            await wait_until_async(lambda: nothing_runs(manager_id), timeout=2.5)
            crossed.set()
        return view

    monkeypatch.setattr(ControlStore, "observe_manager", observe_late)
    await plane.start()
    agent = await SimulatedAgent.register(plane.stores)
    contact = asyncio.create_task(agent.keep_in_contact())
    async with agent.worker(client):
        group = await plane.stores.create_group()
        await plane.stores.submit_one(group)
        await wait_until_async(lambda: agent.ran)
        agent.api_reachable.clear()
        await (await plane.control()).execute_verb(group, Complete(force=True))

        async def settled() -> bool:
            return (await plane.stores.observe(group)).settled

        await wait_until_async(settled, timeout=20)
    contact.cancel()
    assert crossed.is_set()
    assert agent.calls == ["prepare", "run", "clean"]
    assert (await plane.stores.observe(group)).result is TaskGroupResult.SUCCESS
    workflow = client.get_workflow_handle(manager_workflow_id(agent.manager_id))
    events = (await workflow.fetch_history()).events
    assert any(e.HasField("activity_task_cancel_requested_event_attributes") for e in events)
