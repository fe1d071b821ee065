"""The outbox relay against a real outbox and a real Temporal: nothing lost, whatever dies or repeats."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from temporalio.api.enums.v1 import EventType

from mitosis.contracts.temporal_names import SCHEDULER_WORKFLOW_ID, task_group_workflow_id
from mitosis.store.pg.outbox import poke
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.waiting import wait_until_async
from workflows.client import ControlClient, TemporalAddress
from workflows.namespace import ensure_namespace
from workflows.relay import Relay

SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
NOBODY = TemporalAddress("127.0.0.1:1")


@pytest.fixture
async def plane(database: str, temporal_server: str) -> AsyncIterator[ControlPlane]:
    async with control_plane(database, temporal_server) as one:
        await ensure_namespace(await one.client())
        yield one


async def write_pokes(plane: ControlPlane, *groups: UUID, scheduler: bool = False) -> None:
    async with plane.stores.database.transaction() as connection:
        await poke(connection, groups=groups, scheduler=scheduler)


@contextlib.asynccontextmanager
async def running_relay(plane: ControlPlane, client: ControlClient) -> AsyncIterator[None]:
    task = asyncio.create_task(Relay(plane.stores.control, client, lambda: None, 0.5).run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def signals(plane: ControlPlane, workflow_id: str) -> int:
    history = await (await plane.client()).get_workflow_handle(workflow_id).fetch_history()
    return sum(event.event_type == SIGNALED for event in history.events)


async def test_one_poke_serves_all_rows_that_are_due(plane: ControlPlane) -> None:
    group = uuid4()
    await write_pokes(plane, *[group] * 50, scheduler=True)
    async with running_relay(plane, await plane.control()):
        await wait_until_async(plane.stores.outbox_is_empty)
    assert await signals(plane, task_group_workflow_id(group)) == 1
    assert await signals(plane, SCHEDULER_WORKFLOW_ID) == 1


async def test_row_written_while_listening_is_sent_at_once(plane: ControlPlane) -> None:
    async with running_relay(plane, await plane.control()):
        await write_pokes(plane, uuid4())
        await wait_until_async(plane.stores.outbox_is_empty, timeout=2)
        await write_pokes(plane, uuid4())
        await wait_until_async(plane.stores.outbox_is_empty, timeout=2)


async def test_relay_killed_between_take_and_send_loses_nothing(plane: ControlPlane) -> None:
    group = uuid4()
    await write_pokes(plane, group)
    assert len(await plane.stores.control.take_pokes(100)) == 1  # and its process dies here
    assert not await plane.stores.control.take_pokes(100)
    async with running_relay(plane, await plane.control()):
        await wait_until_async(plane.stores.outbox_is_empty, timeout=15)
    assert await signals(plane, task_group_workflow_id(group)) == 1


async def test_relay_killed_between_send_and_delete_sends_twice(plane: ControlPlane) -> None:
    group, control = uuid4(), await plane.control()
    await write_pokes(plane, group)
    for row in await plane.stores.control.take_pokes(100):
        assert row.kind != "schedule"
        await control.poke(row.kind, row.subject)  # and its process dies here
    async with running_relay(plane, control):
        await wait_until_async(plane.stores.outbox_is_empty, timeout=15)
    assert await signals(plane, task_group_workflow_id(group)) == 2


async def test_rows_outlive_an_absent_temporal(plane: ControlPlane) -> None:
    group = uuid4()
    await write_pokes(plane, group)
    nobody = ControlClient(await NOBODY.connect(lazy=True))
    async with running_relay(plane, nobody):
        await wait_until_async(lambda: _attempts(plane, 1))
    assert not await plane.stores.outbox_is_empty()
    async with running_relay(plane, await plane.control()):
        await wait_until_async(plane.stores.outbox_is_empty, timeout=15)


async def test_two_relays_share_the_work(plane: ControlPlane) -> None:
    groups = [uuid4() for _ in range(30)]
    await write_pokes(plane, *groups * 5)
    control = await plane.control()
    async with running_relay(plane, control), running_relay(plane, control):
        await wait_until_async(plane.stores.outbox_is_empty, timeout=20)
    counts = [await signals(plane, task_group_workflow_id(group)) for group in groups]
    assert all(count >= 1 for count in counts)


async def _attempts(plane: ControlPlane, at_least: int) -> bool:
    async with plane.stores.database.connection() as connection:
        rows = await (await connection.execute("SELECT attempts FROM outbox")).fetchall()
    return bool(rows) and all(row["attempts"] >= at_least for row in rows)
