"""Activities whose commit stands and whose completion is never heard of.

Real PostgreSQL and Temporal. Every activity of the control worker does its work and then fails, once, as if
its worker had died in between; Temporal has it done again. ``test_lifecycle.py`` kills the process.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from activities import heartbeats
from mitosis.contracts.control import Cancel, Close, GroupSummary
from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.contracts.lifecycle import TaskGroupResult, TaskGroupState
from mitosis.contracts.temporal_names import task_group_workflow_id
from mitosis.store.managers.hello import say_goodbye
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.simulated_agent import SimulatedAgent
from tests.support.waiting import wait_until_async
from workflows import options
from workflows.control import ControlService
from workflows.worker import ControlPorts

TIMES = 1
SOON = timedelta(seconds=3)


class Forgetful:
    """A store that commits, and loses its first answer of each kind."""

    def __init__(self, name: str, store: Any, lost: Counter[str]) -> None:
        self._name = name
        self._store = store
        self._lost = lost

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        real, name = getattr(self._store, method), f"{self._name}.{method}"

        async def call(*arguments: Any) -> Any:
            answer = await real(*arguments)
            if self._lost[name] < TIMES:
                self._lost[name] += 1
                raise DatabaseUnavailable("the answer got lost after the commit")
            return answer

        return call


@asynccontextmanager
async def forgetful_control(plane: ControlPlane, lost: Counter[str]) -> AsyncIterator[None]:
    control = plane.stores.control
    groups: Any = Forgetful("group", control, lost)
    managers: Any = Forgetful("manager", control, lost)
    scheduler: Any = Forgetful("scheduler", control, lost)
    ports = ControlPorts(groups, managers, scheduler, control, control)
    async with ControlService(plane.where, ports, control, control) as service:
        await service.wait_ready(30)
        yield


@pytest.mark.spec("S000-127", "S000-144")
async def test_every_activity_may_commit_and_never_complete(
    database: str, temporal_server: str
) -> None:
    lost: Counter[str] = Counter()
    async with control_plane(database, temporal_server) as plane, forgetful_control(plane, lost):
        worked = await _life(plane)
        assert (worked.state, worked.result) == (TaskGroupState.COMPLETE, TaskGroupResult.SUCCESS)
        assert (worked.total, worked.succeeded) == (5, 5)
        cancelled = await _cancelled(plane)
        assert (cancelled.result, cancelled.cancelled) == (TaskGroupResult.CANCELLED, 3)
        closed = await _closed_by_itself(plane)
        assert closed.result is TaskGroupResult.SUCCESS
        assert (await _failed_everywhere(plane)).result is TaskGroupResult.SETUP_FAILED
        await wait_until_async(plane.stores.outbox_is_empty, timeout=30)
        assert lost == dict.fromkeys(_kinds(), TIMES)


@pytest.mark.spec("S000-127")
async def test_a_worker_that_dies_is_noticed_soon_and_one_that_is_slow_is_waited_for(
    database: str, temporal_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeats tell them apart; a verb has none, so that two attempts never overlap."""
    monkeypatch.setattr(options, "LOCAL_WITHIN", SOON / 10)
    monkeypatch.setattr(options, "CONTROL_HEARTBEAT_WITHIN", SOON)
    monkeypatch.setattr(heartbeats, "EVERY_SECONDS", 0.1)
    async with control_plane(database, temporal_server) as plane:
        store = plane.stores.control
        slow = Slow(store)
        ports = ControlPorts(slow, store, store, store, store)
        async with ControlService(plane.where, ports, store, store) as service:
            await service.wait_ready(30)
            group = await plane.stores.create_group()
            control = await plane.control()
            await wait_until_async(lambda: slow.answered, timeout=30)
            await control.execute_verb(group, Close())
            handle = control.temporal.get_workflow_handle(task_group_workflow_id(group))
            history = await handle.fetch_history()
    started = [e.activity_task_started_event_attributes for e in history.events]
    assert {one.attempt for one in started if one.attempt} == {1}, "none had to be done again"
    begun = history.events[0].workflow_execution_started_event_attributes
    assert begun.workflow_task_timeout.ToTimedelta() == options.WORKFLOW_TASK_WITHIN
    scheduled = [
        e.activity_task_scheduled_event_attributes
        for e in history.events
        if e.HasField("activity_task_scheduled_event_attributes")
    ]
    beats = {one.activity_type.name: one.heartbeat_timeout.ToTimedelta() for one in scheduled}
    assert (beats["observe_task_group"], beats["apply_verb"]) == (SOON, timedelta())


class Slow:
    """A store of groups whose first look takes twice the time in which a worker must beat."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._asked = self.answered = 0

    def __getattr__(self, method: str) -> Any:
        return getattr(self._store, method)

    async def observe_task_group(self, group: UUID) -> Any:
        self._asked += 1
        if self._asked == 1:
            over = time.monotonic() + 2 * SOON.total_seconds()
            await wait_until_async(lambda: time.monotonic() > over)
        self.answered += 1
        return await self._store.observe_task_group(group)


async def _life(plane: ControlPlane) -> GroupSummary:
    """A group that a host works for: offered once, run once, released once."""
    client = await plane.client()
    agent = await SimulatedAgent.register(plane.stores)
    contact = asyncio.create_task(agent.keep_in_contact())
    async with agent.worker(client):
        group = await plane.stores.create_group()
        for _ in range(5):
            await plane.stores.submit_one(group)
        await wait_until_async(lambda: len(agent.ran) == 5, timeout=30)
        await (await plane.control()).execute_verb(group, Close())
        summary = await _settled(plane, group)
    contact.cancel()
    assert sorted(set(agent.ran)) == sorted(agent.ran)
    assert agent.calls == ["prepare", "run", "clean"]
    async with plane.stores.database.connection() as connection:
        row = await (await connection.execute("SELECT count(*) AS n FROM leases")).fetchone()
    assert row == {"n": 1}
    await say_goodbye(plane.stores.store, agent.manager_id, None)
    return summary


async def _cancelled(plane: ControlPlane) -> GroupSummary:
    group = await plane.stores.create_group()
    for _ in range(3):
        await plane.stores.submit_one(group)
    await (await plane.control()).execute_verb(group, Cancel())
    return await _settled(plane, group)


async def _closed_by_itself(plane: ControlPlane) -> GroupSummary:
    return await _settled(plane, await plane.stores.create_group(auto_close_timeout="1s"))


async def _failed_everywhere(plane: ControlPlane) -> GroupSummary:
    """A group whose one host cannot be prepared."""
    agent = await SimulatedAgent.register(plane.stores)
    agent.setup_exit_code = 1
    contact = asyncio.create_task(agent.keep_in_contact())
    async with agent.worker(await plane.client()):
        group = await plane.stores.create_group(
            assignment_method="user_specified", manager_ids=[agent.manager_id]
        )
        await plane.stores.submit_one(group)
        await (await plane.control()).execute_verb(group, Close())
        summary = await _settled(plane, group)
    contact.cancel()
    return summary


async def _settled(plane: ControlPlane, group: Any) -> GroupSummary:
    handle = (await plane.client()).get_workflow_handle(
        task_group_workflow_id(group), result_type=GroupSummary
    )
    await wait_until_async(lambda: _is_settled(plane, group), timeout=60)
    summary: GroupSummary = await handle.result()
    return summary


async def _is_settled(plane: ControlPlane, group: Any) -> bool:
    return (await plane.stores.observe(group)).settled


def _kinds() -> list[str]:
    of_group = (
        "observe_task_group",
        "apply",
        "close_if_inactive",
        "end_after_failed_setups",
        "discard",
        "finalize",
        "settle",
    )
    of_hosts = ("manager.observe_manager", "manager.release", "scheduler.assign_round")
    return [*(f"group.{method}" for method in of_group), *of_hosts]
