"""Verbs with a real Temporal: carried out by the group's workflow, or without it when nobody works there."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from mitosis.contracts.errors import InvalidTransition, NotFound
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupResult, TaskGroupState
from mitosis.store.control.control_store import ControlStore
from tests.support.http_api import Api, in_process_api, ready
from tests.support.waiting import wait_until_async
from workflows.client import ControlClient, TemporalAddress
from workflows.control import ControlService
from workflows.namespace import ensure_namespace
from workflows.worker import ControlPorts


@pytest.fixture
async def where(temporal_server: str) -> TemporalAddress:
    """A namespace of this test's own."""
    address = TemporalAddress(temporal_server, f"test-{uuid.uuid4().hex[:8]}")
    await ensure_namespace(await address.connect())
    return address


@pytest.fixture
async def api(database: str, where: TemporalAddress) -> AsyncIterator[Api]:
    async with in_process_api(database, await ControlClient.open(where)) as opened:
        yield opened


@asynccontextmanager
async def control_service(api: Api, where: TemporalAddress) -> AsyncIterator[None]:
    store = ControlStore(api.app_state.store)
    ports = ControlPorts(store, store, store, store, store)
    service = ControlService(where, ports, store, store)
    async with service:
        await service.wait_ready(30)
        yield


@pytest.mark.spec("S002-118", "S002-122")
async def test_verbs_are_carried_out_by_the_workflow(api: Api, where: TemporalAddress) -> None:
    async with control_service(api, where), api.client() as client:
        assert (await ready(api)) == (200, {"status": "ok", "database": "ok", "temporal": "ok"})
        group = await client.create_group(TaskGroupSpec(name="work"))
        await client.submit("work", [{"command": ["true"]}])
        assert (await client.close_group("work", reason="enough")).state is TaskGroupState.CLOSED
        assert (await client.reopen("work")).state is TaskGroupState.OPEN
        await client.cancel("work")
        with pytest.raises(InvalidTransition) as refused:
            await client.reopen("work")
        assert refused.value.facts["state"] == "cancelled"
        settled = await client.wait("work", timeout=timedelta(seconds=20))
        assert (settled.settled, settled.result) == (True, TaskGroupResult.CANCELLED)
        await asked_for(where, group.workflow_id, ["close", "reopen", "cancel", "reopen"])
        await client.create_group(TaskGroupSpec(name="empty"))
        await client.close_group("empty")
        settled = await client.wait("empty", timeout=timedelta(seconds=20))
        assert (settled.state, settled.result) == (
            TaskGroupState.COMPLETE,
            TaskGroupResult.SUCCESS,
        )
        await client.delete_group("empty")
        with pytest.raises(NotFound):
            await client.close_group("empty")


async def asked_for(where: TemporalAddress, workflow_id: str, updates: list[str]) -> None:
    """Wait until the histories of a workflow tell these updates.

    Of all its runs: a poke that comes after the end starts one more, which ends at once.
    """
    temporal = await where.connect()

    async def told() -> list[str]:
        query = f"WorkflowId = '{workflow_id}'"
        runs = [run async for run in temporal.list_workflows(query)]
        names = []
        for run in sorted(runs, key=lambda run: run.start_time):
            handle = temporal.get_workflow_handle(workflow_id, run_id=run.run_id)
            names += await updates_of(handle)
        return names

    async def as_expected() -> bool:
        return await told() == updates

    await wait_until_async(as_expected)


async def updates_of(run: WorkflowHandle[Any, Any]) -> list[str]:
    """The names of the updates that one run was asked for."""
    accepted = (
        event.workflow_execution_update_accepted_event_attributes
        for event in (await run.fetch_history()).events
    )
    names = [attributes.accepted_request.input.name for attributes in accepted]
    return [name for name in names if name]


async def test_a_temporal_without_a_worker_holds_nobody_up(api: Api) -> None:
    async with api.client() as client:
        await client.create_group(TaskGroupSpec(name="work"))
        assert (await client.close_group("work")).state is TaskGroupState.CLOSED
