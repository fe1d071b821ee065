"""An hour of any one part away costs each workflow fewer than 200 events, with time skipping."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.control import GroupView, LeaseEnd, LeaseOutcome, WaitingWork
from mitosis.contracts.lifecycle import EnvironmentState, LeaseState, TaskGroupState
from tests.support.examples import examples
from tests.support.waiting import wait_until_async
from tests.workflow.agent import ScriptedHost, host_worker
from tests.workflow.memory import Group, Host, Lease, MemoryGroups, MemoryHost
from tests.workflow.running import running
from tests.workflow.scenarios import AnyHandle, start_group, start_manager, start_scheduler
from tests.workflow.servers import time_skipping
from workflows import options
from workflows.client import ControlClient
from workflows.look import EVERY_SECONDS, Look
from workflows.manager import ManagerWorkflow

HOUR = timedelta(hours=1)
MOST = 200
GROUP = uuid4()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test server does not skip time while an activity is under way: shorten what is waited for."""
    monkeypatch.setattr(options, "HOST_TAKES_WITHIN", timedelta(seconds=0.1))
    monkeypatch.setattr(options, "HOST_HEARTBEAT_WITHIN", timedelta(seconds=0.1))


async def length(handle: AnyHandle) -> int:
    return (await handle.describe()).history_length


async def an_hour_of(skipping: WorkflowEnvironment, handle: AnyHandle) -> int:
    """How many events the next hour adds."""
    before = await length(handle)
    await skipping.sleep(HOUR)
    return await length(handle) - before


def leased(skipping: WorkflowEnvironment, **facts: object) -> MemoryHost:
    host = Host(lease=Lease(7, GROUP, LeaseState.ACTIVE), **facts)  # type: ignore[arg-type]
    host.environments[GROUP] = EnvironmentState.READY
    return MemoryHost(skipping.get_current_time, host)


async def test_api_away_while_a_lease_is_silent_past_its_limit(
    skipping: WorkflowEnvironment,
) -> None:
    memory = leased(skipping)
    memory.api_away = True
    async with running(skipping, host=memory):
        handle = await start_manager(skipping, memory)
        await skipping.sleep(timedelta(minutes=2))
        assert memory.host.released, "it wants to release the lease of the silent host"
        assert await an_hour_of(skipping, handle) < MOST
        assert memory.host.lease is not None


@pytest.mark.parametrize("offered", [True, False])
async def test_host_in_contact_that_only_temporal_does_not_reach(
    skipping: WorkflowEnvironment, offered: bool
) -> None:
    memory = leased(skipping)
    if offered:
        memory.host.environments[GROUP] = EnvironmentState.GONE
    contact = asyncio.create_task(keep_in_contact(memory))
    async with running(skipping, host=memory):
        handle = await start_manager(skipping, memory)
        try:
            assert await an_hour_of(skipping, handle) < MOST
        finally:
            contact.cancel()


async def keep_in_contact(memory: MemoryHost) -> None:
    while True:
        await memory.contact()
        await asyncio.sleep(0.002)


async def test_silent_host_that_may_be_silent_for_long(skipping: WorkflowEnvironment) -> None:
    memory = leased(skipping, host_lost_after=3 * HOUR)
    async with running(skipping, host=memory):
        handle = await start_manager(skipping, memory)
        assert await an_hour_of(skipping, handle) < MOST
        assert memory.host.lease is not None


async def test_agent_that_fails_every_activity(skipping: WorkflowEnvironment) -> None:
    """As one that cannot reach the API."""
    memory = leased(skipping)

    class Failing(ScriptedHost):
        async def run_lease(self, command: object) -> LeaseOutcome:
            self.calls.append("run")
            await self.memory.contact()
            return LeaseOutcome(end=LeaseEnd.GONE)

    host = Failing(memory)
    contact = asyncio.create_task(keep_in_contact(memory))
    async with (
        running(skipping, host=memory),
        host_worker(skipping.client, memory.host.uuid, host),
    ):
        handle = await start_manager(skipping, memory)
        try:
            assert await an_hour_of(skipping, handle) < MOST
        finally:
            contact.cancel()
    assert len(host.calls) > 5, "it is tried again"


async def test_open_offer_that_no_host_takes(skipping: WorkflowEnvironment) -> None:
    memory = MemoryHost(skipping.get_current_time, Host())
    memory.open_offers = 1
    async with scheduler(skipping, memory) as handle:
        assert await an_hour_of(skipping, handle) < MOST
    assert memory.rounds > 5


async def test_judgements_that_change_nothing_hide_no_time_at_which_a_round_is_due(
    skipping: WorkflowEnvironment,
) -> None:
    memory = MemoryHost(skipping.get_current_time, Host())
    memory.due_at = await skipping.get_current_time() + timedelta(minutes=40, seconds=7)
    async with scheduler(skipping, memory) as handle:
        assert await an_hour_of(skipping, handle) < MOST
    assert memory.rounds > 10
    assert memory.late is not None
    assert memory.late < timedelta(seconds=2)


async def test_usable_host_that_no_round_matches(skipping: WorkflowEnvironment) -> None:
    """Every look finds the same work for it."""
    memory = MemoryHost(skipping.get_current_time, Host())
    look = Look(ControlClient(skipping.client), Never())
    found = WaitingWork(what=("host 1 for task group 2",), last_epoch=7)
    async with scheduler(skipping, memory) as handle:
        before, now, slept = await length(handle), 0.0, 0.0
        while now < HOUR.total_seconds():
            now += EVERY_SECONDS
            if await look.signal(found, now):
                await skipping.sleep(timedelta(seconds=now - slept))
                slept = now
        assert await length(handle) - before < MOST
    assert memory.rounds > 10


async def test_task_group_whose_reason_to_wait_keeps_changing(
    skipping: WorkflowEnvironment,
) -> None:
    """Each look finds another one; the details show what the last poke found."""
    group = Group(ready=1)
    groups = MemoryGroups(skipping.get_current_time, group)
    client = Counting(skipping.client)
    look = Look(client, Never())
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await wait_until_async(lambda: groups.calls == ["observe"], timeout=30)
        for number in range(1, int(HOUR.total_seconds() / EVERY_SECONDS) + 1):
            situation, pokes = number // 2, client.pokes
            group.chain = (f"h1: reason {situation}",)
            found = WaitingWork(situations={group.uuid: situation})
            await look.signal(found, number * EVERY_SECONDS)
            if client.pokes > pokes:
                seen = f"    * h1: reason {situation}"
                await wait_until_async(lambda: shows(handle, seen), timeout=30)  # noqa: B023
        assert client.pokes > 10
        assert await length(handle) < MOST


async def shows(handle: AnyHandle, line: str) -> bool:
    asked = handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return line in (await asked).current_details.splitlines()


class Counting(ControlClient):
    """Counts the pokes of task groups."""

    pokes = 0

    async def poke(self, *subject: Any) -> None:
        self.pokes += subject[0] == "task_group"
        await super().poke(*subject)


class Never:
    """Nobody looks by itself."""

    async def look(self) -> WaitingWork:
        raise NotImplementedError


@asynccontextmanager
async def scheduler(skipping: WorkflowEnvironment, memory: MemoryHost) -> AsyncIterator[AnyHandle]:
    async with running(skipping, host=memory):
        handle = await start_scheduler(skipping)
        yield handle
        await handle.terminate()


class Refusing(MemoryGroups):
    """Its guards disagree with every decision."""

    async def settle(self, task_group_id: object) -> GroupView:
        self.calls.append("settle")
        (group,) = self.groups.values()
        return group.view(await self._clock())


async def test_group_whose_settlement_is_refused(skipping: WorkflowEnvironment) -> None:
    group = Group(state=TaskGroupState.COMPLETE)
    groups = Refusing(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        assert await an_hour_of(skipping, handle) < MOST
    assert groups.calls.count("settle") > 10


async def test_store_away(skipping: WorkflowEnvironment) -> None:
    """The retries of an activity are not in the history, however many there are; then both go on."""
    group, memory = Group(state=TaskGroupState.COMPLETE), leased(skipping)
    groups = MemoryGroups(skipping.get_current_time, group)
    groups.store_away = memory.store_away = True
    async with running(skipping, groups=groups, host=memory):
        handles = [await start_group(skipping, group), await start_manager(skipping, memory)]
        await skipping.sleep(HOUR / 6)
        for handle in handles:
            assert await length(handle) < MOST / 10
        groups.store_away = memory.store_away = False
        await handles[0].result()
        described = await handles[1].describe()
        assert described.status is not WorkflowExecutionStatus.FAILED


CHANGES = st.lists(
    st.tuples(st.sampled_from(["api", "contact"]), st.integers(1, 90), st.booleans()),
    min_size=1,
    max_size=6,
)
"""What changes, how many minutes it then stays so, and whether a poke says it."""


@given(CHANGES)
@settings(max_examples=examples(4))
async def test_events_are_bounded_by_changes(changes: list[tuple[str, int, bool]]) -> None:
    """Outages of the API and silences of a host that Temporal does not reach, in any order."""
    async with time_skipping() as skipping:
        memory = leased(skipping, host_lost_after=timedelta(minutes=30))
        async with running(skipping, host=memory):
            handle = await start_manager(skipping, memory)
            for part, minutes, poked in changes:
                memory.api_away ^= part == "api"
                memory.in_contact ^= part == "contact"
                if poked:
                    await handle.signal(ManagerWorkflow.poke)
                await skipping.sleep(timedelta(minutes=minutes))
                if memory.host.offline:
                    break
            hours = sum(minutes for _, minutes, _ in changes) / 60
            assert await length(handle) < 60 + 100 * len(changes) + MOST * hours
