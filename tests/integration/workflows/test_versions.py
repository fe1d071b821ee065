"""Two builds of the control worker on one real server: the newest one that runs serves every workflow."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb
from temporalio.api.enums.v1 import EventType

from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.temporal_names import DEPLOYMENT, task_group_workflow_id
from mitosis.store.control.control_store import ControlStore
from mitosis.store.processes.live import own_build, recording_process
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.waiting import wait_until_async
from tests.support.workflow_tasks import failed_workflow_tasks
from workflows.control import ControlService
from workflows.worker import ControlPorts

EARLIER = "0.0.9-0011-earlier"


class EarlierStore(ControlStore):
    """Of a control worker of the release before."""

    @property
    def build(self) -> str:
        return EARLIER


@asynccontextmanager
async def running(plane: ControlPlane, store: ControlStore) -> AsyncIterator[None]:
    ports = ControlPorts(store, store, store, store, store)
    service = ControlService(plane.where, ports, store, store)
    async with service:
        await service.wait_ready(30)
        yield


@asynccontextmanager
async def earlier_one(plane: ControlPlane) -> AsyncIterator[None]:
    """A control worker of the release before, and its row."""
    async with plane.stores.database.connection() as connection:
        await connection.execute(
            "INSERT INTO live_processes (id, kind, version, host_name, pid, knows, beat_at)"
            " VALUES (%s, 'control', '0.0.9', 'elsewhere', 7, %s, 'infinity')",
            (uuid4(), Jsonb({"build": EARLIER})),
        )
    async with running(plane, EarlierStore(plane.stores.store)):
        yield


async def act(plane: ControlPlane, group: UUID, verb: str, after: TaskGroupState) -> str:
    """Give a verb as a Temporal user would; return the build that has served it."""
    workflow = task_group_workflow_id(group)
    await wait_until_async(plane.stores.outbox_is_empty, timeout=30)  # it has begun
    answer = await plane.cli("workflow", "signal", "--name", verb, "-w", workflow)
    assert answer.status == 0, answer.err

    async def done() -> bool:
        return (await plane.stores.observe(group)).state is after

    await wait_until_async(done)
    return (await builds_of(plane, workflow))[-1]


async def builds_of(plane: ControlPlane, workflow: str) -> Sequence[str]:
    """The builds that have completed its workflow tasks, in their order; none may have failed."""
    handle = (await plane.client()).get_workflow_handle(workflow)
    events = [event async for event in handle.fetch_history_events()]
    assert failed_workflow_tasks(events) == []
    return [
        event.workflow_task_completed_event_attributes.deployment_version.build_id
        for event in events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]


async def current(plane: ControlPlane) -> str:
    """As the command line shows it."""
    answer = await plane.cli("worker", "deployment", "describe", "--name", DEPLOYMENT, "-o", "json")
    found: str = answer.json()["routingConfig"].get("currentVersionBuildID", "")
    return found


async def test_the_newest_control_worker_that_runs_serves_the_workflows(
    database: str, temporal_server: str
) -> None:
    async with control_plane(database, temporal_server) as plane:
        group = await plane.stores.create_group()
        store = ControlStore(plane.stores.store)
        closed, opened = TaskGroupState.CLOSED, TaskGroupState.OPEN
        async with earlier_one(plane):
            await plane.stores.submit_one(group)
            assert await act(plane, group, "close", closed) == EARLIER
            async with recording_process(plane.stores.store, "control"), running(plane, store):
                assert await current(plane) == own_build()
                assert await act(plane, group, "reopen", opened) == own_build()
            assert await current(plane) == EARLIER
            assert await act(plane, group, "close", closed) == EARLIER
        async with plane.stores.database.connection() as connection:
            await connection.execute("DELETE FROM live_processes")
        async with running(plane, store):
            assert await act(plane, group, "reopen", opened) == own_build()
        assert await current(plane) == "", "workers without a version may go on"
