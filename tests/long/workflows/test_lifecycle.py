"""One group from creation to settlement over real PostgreSQL and Temporal, with a simulated agent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from mitosis.contracts.control import Cancel, Close, Complete, GroupSummary, Reopen
from mitosis.contracts.errors import InvalidTransition, NotFound, TemporalUnavailable
from mitosis.contracts.http import TaskGroupUpdate
from mitosis.contracts.lifecycle import EnvironmentState, TaskGroupResult, TaskGroupState
from mitosis.contracts.temporal_names import (
    SCHEDULER_WORKFLOW_ID,
    manager_workflow_id,
    task_group_workflow_id,
)
from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.temporal import EmbeddedTemporal
from mitosis.store.groups.definition import update_group
from mitosis.store.managers.views import observe_manager
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.control_process import ControlProcess
from tests.support.simulated_agent import Reached, SimulatedAgent, nothing
from tests.support.waiting import wait_until_async
from workflows.client import ControlClient


@pytest.fixture
async def plane(database: str, temporal_server: str) -> AsyncIterator[ControlPlane]:
    async with control_plane(database, temporal_server) as one:
        yield one


@asynccontextmanager
async def agent_on(
    plane: ControlPlane, client: Client, reached: Reached = nothing
) -> AsyncIterator[SimulatedAgent]:
    agent = await SimulatedAgent.register(plane.stores, reached)
    contact = asyncio.create_task(agent.keep_in_contact())
    try:
        async with agent.worker(client):
            yield agent
    finally:
        contact.cancel()


async def settled(plane: ControlPlane, group: UUID) -> GroupSummary:
    handle = (await plane.client()).get_workflow_handle(
        task_group_workflow_id(group), result_type=GroupSummary
    )
    summary: GroupSummary = await handle.result()
    return summary


async def shows(handle: WorkflowHandle[Any, Any], text: str) -> bool:
    """Whether the current details say so."""
    with contextlib.suppress(RPCError):  # it has not been started yet
        metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        return text in metadata.current_details
    return False


async def events_of(client: Client, workflow_id: str) -> Sequence[HistoryEvent]:
    return (await client.get_workflow_handle(workflow_id).fetch_history()).events


@pytest.mark.spec("S002-27", "S002-103", "S002-106", "S002-122", "S002-15", "S002-265", "S002-266")
async def test_group_runs_completes_and_settles(plane: ControlPlane) -> None:
    await plane.start()
    client = await plane.client()
    async with agent_on(plane, client) as agent:
        group = await plane.stores.create_group()
        for _ in range(5):
            await plane.stores.submit_one(group)
        await wait_until_async(lambda: len(agent.ran) == 5, timeout=30)
        view = await (await plane.control()).execute_verb(group, Close())
        assert view.state in (TaskGroupState.CLOSED, TaskGroupState.COMPLETE)
        summary = await settled(plane, group)
    assert summary.state is TaskGroupState.COMPLETE
    assert summary.result is TaskGroupResult.SUCCESS
    assert (summary.total, summary.succeeded) == (5, 5)
    assert summary.seconds is not None
    assert agent.calls == ["prepare", "run", "clean"]
    group_events = await events_of(client, task_group_workflow_id(group))
    timers = [e for e in group_events if e.HasField("timer_started_event_attributes")]
    assert timers == [], "nothing holds up the end of a group that has ended"


async def test_a_group_of_one_task_costs_few_events(plane: ControlPlane) -> None:
    """60 events of the group, 60 of the host, 20 of the scheduler."""
    await plane.start()
    client = await plane.client()
    async with agent_on(plane, client) as agent:
        host = client.get_workflow_handle(manager_workflow_id(agent.manager_id))
        await wait_until_async(lambda: shows(host, "next: idle"), timeout=30)
        await wait_until_async(plane.stores.outbox_is_empty, timeout=30)
        idle = {one: await resting_length(client, one) for one in (host.id, SCHEDULER_WORKFLOW_ID)}
        group = await plane.stores.create_group()
        await plane.stores.submit_one(group)
        await wait_until_async(lambda: agent.ran, timeout=30)
        await (await plane.control()).execute_verb(group, Close())
        await settled(plane, group)
        await wait_until_async(lambda: shows(host, "next: idle"), timeout=30)
        events = (
            await length(client, task_group_workflow_id(group)),
            await length(client, host.id) - idle[host.id],
            await length(client, SCHEDULER_WORKFLOW_ID) - idle[SCHEDULER_WORKFLOW_ID],
        )
        assert all(seen <= most for seen, most in zip(events, (60, 60, 20), strict=True)), events


async def test_a_group_shows_why_it_waits_although_nothing_pokes_it(plane: ControlPlane) -> None:
    await plane.start(look_every_seconds=0.2)
    client = await plane.client()
    group = await plane.stores.create_group()
    handle = client.get_workflow_handle(task_group_workflow_id(group))
    await wait_until_async(lambda: shows(handle, "no task has been submitted yet"), timeout=30)
    await plane.stores.submit_one(group)
    await wait_until_async(lambda: shows(handle, "next: no host may serve"), timeout=30)
    before = await resting_length(client, handle.id)
    async with agent_on(plane, client) as agent:
        await wait_until_async(lambda: agent.ran, timeout=30)
        await wait_until_async(lambda: shows(handle, "next: all tasks have ended"), timeout=30)
    assert await length(client, handle.id) - before <= 60


async def resting_length(client: Client, workflow_id: str) -> int:
    """The length of its history once no workflow task is pending: what came before has been done."""
    handle = client.get_workflow_handle(workflow_id)

    async def rests() -> bool:
        described = await handle.describe()
        return not described.raw_description.HasField("pending_workflow_task")

    await wait_until_async(rests, timeout=30)
    return await length(client, workflow_id)


async def length(client: Client, workflow_id: str) -> int:
    return (await client.get_workflow_handle(workflow_id).describe()).history_length


@pytest.mark.spec("S002-33")
async def test_a_changed_auto_close_arms_the_timer_again(plane: ControlPlane) -> None:
    await plane.start()
    group = await plane.stores.create_group(auto_close_timeout="1h")
    handle = (await plane.client()).get_workflow_handle(task_group_workflow_id(group))

    async def armed() -> bool:
        with contextlib.suppress(RPCError):  # it has not been started yet
            history = await handle.fetch_history()
            return any(e.HasField("timer_started_event_attributes") for e in history.events)
        return False

    await wait_until_async(armed, timeout=30)
    sooner = TaskGroupUpdate(auto_close_timeout=timedelta(seconds=1))
    await update_group(plane.stores.store, group, sooner)
    summary = await asyncio.wait_for(settled(plane, group), timeout=30)
    assert summary.state is TaskGroupState.COMPLETE


@pytest.mark.new_sessions
@pytest.mark.timeout(300)
@pytest.mark.spec("S000-127", "S000-144")
async def test_control_worker_killed_between_any_two_steps(
    plane: ControlPlane, database: str
) -> None:
    control = ControlProcess(plane, database)
    step = control.kill_and_start_again
    try:
        await control.start()
        async with agent_on(plane, await plane.client(), step) as agent:
            group = await plane.stores.create_group()
            for _ in range(3):
                await plane.stores.submit_one(group)
            await step("created")
            await wait_until_async(lambda: len(agent.ran) == 3, timeout=120)
            await step("drained")
            client = await plane.control()
            await wait_until_async(lambda: _closed(client, group), timeout=30)
            await step("closed")
            summary = await settled(plane, group)
    finally:
        await control.kill()
    assert summary.result is TaskGroupResult.SUCCESS
    assert (summary.total, summary.succeeded) == (3, 3)
    assert sorted(set(agent.ran)) == sorted(agent.ran), "no task ran twice"
    assert {"created", "offered", "preparing", "prepared", "attached", "claimed"} <= set(
        control.kills
    )
    assert {"reported", "drained", "closed", "to clean", "tearing down"} <= set(control.kills)


async def _closed(client: ControlClient, group: UUID) -> bool:
    try:
        await client.execute_verb(group, Close())
    except TemporalUnavailable:
        return False
    return True


@pytest.mark.spec("S002-110", "S002-144")
async def test_failed_setup_gives_the_host_back(plane: ControlPlane) -> None:
    await plane.start()
    async with agent_on(plane, await plane.client()) as agent:
        agent.setup_exit_code = 1
        group = await plane.stores.create_group()
        await plane.stores.submit_one(group)
        await wait_until_async(lambda: agent.calls, timeout=20)

        async def released() -> bool:
            view = await observe_manager(plane.stores.store, agent.manager_id)
            return view.lease is None

        await wait_until_async(released, timeout=20)
        control = await plane.control()
        await control.execute_verb(group, Complete(force=True))
        summary = await settled(plane, group)
    assert summary.result is TaskGroupResult.SETUP_FAILED
    assert agent.calls == ["prepare"]


@pytest.mark.parametrize("how", ["terminate", "cancel"])
async def test_host_workflow_that_somebody_ends_is_started_again(
    plane: ControlPlane, how: str
) -> None:
    """The lease is not touched by it: same epoch, watched again, work goes on."""
    await plane.start(bootstrap_every_seconds=1)
    async with agent_on(plane, await plane.client()) as agent:
        group = await plane.stores.create_group()
        await plane.stores.submit_one(group)
        await wait_until_async(lambda: len(agent.ran) == 1, timeout=30)
        epoch = await _epoch(plane, agent)
        ended = await plane.cli("workflow", how, "-w", manager_workflow_id(agent.manager_id))
        assert ended.status == 0, ended.err
        await wait_until_async(lambda: agent.calls.count("run") == 2, timeout=30)
        assert await _epoch(plane, agent) == epoch
        await plane.stores.submit_one(group)
        await wait_until_async(lambda: len(agent.ran) == 2, timeout=30)


@pytest.mark.spec("S002-141")
async def test_host_that_only_temporal_hears_is_lost_when_its_clock_has_run_out(
    plane: ControlPlane,
) -> None:
    """Heartbeats of an activity are no contact: reconcile has the workflow look (P4, P6)."""
    await plane.start(bootstrap_every_seconds=1)
    async with agent_on(plane, await plane.client()) as agent:
        group = await plane.stores.create_group()
        await plane.stores.submit_one(group)
        await wait_until_async(lambda: len(agent.ran) == 1, timeout=30)
        agent.api_reachable.clear()

        async def lost() -> bool:
            async with (
                plane.stores.database.connection() as connection
            ):  # a renewal may be under way
                await connection.execute("UPDATE leases SET alive_until = now() - interval '1 s'")
            view = await observe_manager(plane.stores.store, agent.manager_id)
            owed = [e.state is EnvironmentState.OWED for e in view.environments]
            return view.lease is None and owed == [True]

        try:
            await wait_until_async(lost, timeout=30)
        finally:
            agent.api_reachable.set()  # else its worker would wait for it for ever


async def test_verbs_answer_the_group_or_say_why_not(plane: ControlPlane) -> None:
    await plane.start()
    control, group = await plane.control(), await plane.stores.create_group()
    await plane.stores.submit_one(group)
    assert (await control.execute_verb(group, Close())).state is TaskGroupState.CLOSED
    assert (await control.execute_verb(group, Close())).state is TaskGroupState.CLOSED
    assert (await control.execute_verb(group, Reopen())).state is TaskGroupState.OPEN
    await control.execute_verb(group, Cancel(reason="wrong data"))
    with pytest.raises(InvalidTransition) as refused:
        await control.execute_verb(group, Reopen())
    assert refused.value.facts["state"] == "cancelled"
    assert refused.value.facts["event"] == "reopen"
    assert refused.value.facts["allowed"] == []
    with pytest.raises(NotFound):
        await control.execute_verb(plane.stores.admin, Close())


async def test_verb_that_nobody_waits_for_any_more_is_not_carried_out(plane: ControlPlane) -> None:
    """Late messages change nothing: by then the caller has closed, or reopened, by another way."""
    await plane.start()
    await plane.stop()
    control, group = await plane.control(), await plane.stores.create_group()
    with pytest.raises(TemporalUnavailable):
        await control.execute_verb(group, Close())
    await plane.start()
    handle = control.temporal.get_workflow_handle(task_group_workflow_id(group))

    async def refused() -> bool:
        return "close came too late" in (await handle.fetch_history()).to_json()

    await wait_until_async(refused, timeout=20)
    assert (await plane.stores.observe(group)).state is TaskGroupState.OPEN


async def test_control_plane_may_start_before_temporal(
    database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = DataFolder(tmp_path_factory.mktemp("late"))
    folder.lock()
    server = EmbeddedTemporal(folder)
    await server.start()
    address = server.address  # the data folder keeps it
    await server.stop()
    try:
        async with control_plane(database, address) as plane:
            service = plane.service()
            async with service:
                group = await plane.stores.create_group()
                with pytest.raises(TemporalUnavailable):
                    await service.wait_ready(1)
                assert not service.ready
                await server.start()
                await service.wait_ready(30)
                client = await plane.control()
                await wait_until_async(lambda: _closed(client, group), timeout=30)
    finally:
        await server.stop()
        folder.release()


@pytest.mark.timeout(180)
async def test_temporal_wiped_under_a_live_control_plane(
    database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """PostgreSQL alone can rebuild the control plane, and a running lease is watched again."""
    folder = DataFolder(tmp_path_factory.mktemp("wiped"))
    folder.lock()
    server = EmbeddedTemporal(folder)
    await server.start()
    try:
        async with control_plane(database, server.address) as plane:
            await plane.start(bootstrap_every_seconds=1)
            async with agent_on(plane, await plane.client()) as agent:
                group = await plane.stores.create_group()
                await plane.stores.submit_one(group)
                await wait_until_async(lambda: len(agent.ran) == 1, timeout=30)
                epoch = await _epoch(plane, agent)
                await server.stop()
                for file in folder.part("temporal").glob("temporal.db*"):
                    file.unlink()
                await plane.stores.submit_one(group)  # works without Temporal
                await server.start()
                await wait_until_async(lambda: agent.calls.count("run") == 2, timeout=60)
                assert await _epoch(plane, agent) == epoch
                await wait_until_async(lambda: len(agent.ran) == 2, timeout=30)
                control = await plane.control()
                await wait_until_async(lambda: _closed(control, group), timeout=30)
                summary = await settled(plane, group)
    finally:
        await server.stop()
        folder.release()
    assert summary.succeeded == 2


async def _epoch(plane: ControlPlane, agent: SimulatedAgent) -> int:
    lease = (await observe_manager(plane.stores.store, agent.manager_id)).lease
    assert lease is not None
    return lease.epoch
