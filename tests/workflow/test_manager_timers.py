"""A host that does not take an offer, falls silent, comes back, fails its setup: with time skipping."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.control import (
    HookVerdict,
    ReleaseReason,
    ReleaseStatus,
)
from mitosis.contracts.lifecycle import EnvironmentState, LeaseState, TaskGroupState
from tests.support.waiting import wait_until_async
from tests.workflow.agent import ScriptedHost, host_worker
from tests.workflow.memory import Host, Lease, MemoryHost
from tests.workflow.running import running
from tests.workflow.scenarios import AnyHandle, start_manager
from workflows import decisions, options
from workflows.decisions import LOST_CHECK_SECONDS
from workflows.manager import ManagerWorkflow
from workflows.poke_loop import MESSAGES_BEFORE_CONTINUE_AS_NEW
from workflows.visibility import KEYS

GROUP = uuid4()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test server does not skip time while an activity is under way: shorten what is waited for."""
    monkeypatch.setattr(options, "HOST_TAKES_WITHIN", timedelta(seconds=1))
    monkeypatch.setattr(options, "HOST_HEARTBEAT_WITHIN", timedelta(seconds=1))


@pytest.fixture
def memory(skipping: WorkflowEnvironment) -> MemoryHost:
    return MemoryHost(skipping.get_current_time, Host(lease=Lease(7, GROUP)))


@asynccontextmanager
async def workflow_of(
    skipping: WorkflowEnvironment, memory: MemoryHost, host: ScriptedHost | None
) -> AsyncIterator[AnyHandle]:
    """The manager's workflow on a control worker; with ``host`` also an agent."""
    async with running(skipping, host=memory):
        handle = await start_manager(skipping, memory)
        if host is None:
            yield handle
        else:
            async with host_worker(skipping.client, memory.host.uuid, host):
                try:
                    yield handle
                finally:
                    host.stop.set()  # a stubborn one would outlive a test that failed
                    # The worker may wait for ever if it is stopped while an attempt ends that the
                    # server has given up.
                    await wait_until_async(lambda: not host.leases_run)


async def test_offer_that_no_host_takes_is_withdrawn_after_ten_seconds(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    async with workflow_of(skipping, memory, None):
        await skipping.sleep(timedelta(seconds=9))
        assert not memory.host.released
        await skipping.sleep(timedelta(seconds=2))
        await wait_until_async(lambda: memory.host.released)
    assert memory.host.released == [(7, ReleaseReason.UNREACHABLE, ReleaseStatus.RELEASED)]


async def test_a_renamed_host_is_found_by_its_new_name(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    async with workflow_of(skipping, memory, ScriptedHost(memory)) as handle:

        async def memo() -> object:
            return (await (await handle.describe()).memo()).get("manager")

        async def shown() -> bool:
            found = (await handle.describe()).typed_search_attributes.get(KEYS["MitosisManager"])
            return bool(await memo() == found == memory.host.name)

        await wait_until_async(shown)
        memory.host.name = "renamed"
        await handle.signal(ManagerWorkflow.poke)
        await wait_until_async(shown)
        assert await memo() == "renamed"


@pytest.mark.spec("C-31", "C-35", "S000-140")
@pytest.mark.parametrize("what", ["affinity", "idle", "ask_back"])
async def test_the_time_for_which_a_lease_is_safe_is_a_timer_that_asks_for_a_decision(
    skipping: WorkflowEnvironment, memory: MemoryHost, what: str
) -> None:
    """The test server does not skip time while the host works, so the time is short."""
    host = ScriptedHost(memory)
    memory.in_contact = True
    assert memory.host.lease is not None
    async with workflow_of(skipping, memory, host) as handle:
        await wait_until_async(host.running.is_set)
        due = await skipping.get_current_time() + timedelta(seconds=2)
        memory.host.lease.turn = (what, due)
        await handle.signal(ManagerWorkflow.poke)
        await wait_until_async(lambda: memory.decisions)
        assert timedelta(0) <= memory.decisions[0] - due < timedelta(seconds=1)

        shown = [timer for timer in await timers(handle) if timer[0].endswith("is over")]
        assert shown[0][0] == f"{what} is over"
        assert 0 < shown[0][1] <= 2
    assert len(memory.decisions) == 1


@pytest.mark.spec("C-31", "C-35", "S000-140")
@pytest.mark.parametrize(
    ("what", "seconds"), [("affinity", 3600), ("idle", 180), ("ask_back", 300)]
)
async def test_the_timer_of_a_lease_is_as_long_as_it_is_safe(
    skipping: WorkflowEnvironment, memory: MemoryHost, what: str, seconds: int
) -> None:
    host = ScriptedHost(memory)
    memory.in_contact = True
    async with workflow_of(skipping, memory, host) as handle:
        await wait_until_async(host.running.is_set)
        assert memory.host.lease is not None
        due = await skipping.get_current_time() + timedelta(seconds=seconds)
        memory.host.lease.turn = (what, due)
        await handle.signal(ManagerWorkflow.poke)

        async def lengths() -> list[float]:
            return [length for name, length in await timers(handle) if name == f"{what} is over"]

        await wait_until_async(lengths)
        assert (await lengths())[0] == pytest.approx(seconds, abs=1)
        assert not memory.decisions


async def timers(handle: AnyHandle) -> list[tuple[str, float]]:
    """The summaries of the timers that a workflow has started, and their lengths in seconds."""
    events = (await handle.fetch_history()).events
    started = [one for one in events if one.HasField("timer_started_event_attributes")]
    return [
        (
            one.user_metadata.summary.data.decode().strip('"'),
            one.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds(),
        )
        for one in started
    ]


async def test_failed_setup_releases_the_lease(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    host = ScriptedHost(memory)
    host.setup = HookVerdict.FAILED
    async with workflow_of(skipping, memory, host):
        await wait_until_async(lambda: memory.host.released)
    assert memory.host.released == [(7, ReleaseReason.SETUP_FAILED, ReleaseStatus.RELEASED)]
    assert host.calls == ["prepare"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.spec("S002-141", "S002-176")
async def test_silent_host_is_lost_only_when_its_liveness_clock_has_run_out(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    host = ScriptedHost(memory)
    async with workflow_of(skipping, memory, host) as handle:
        await wait_until_async(host.running.is_set)
        host.mute = True
        lease = memory.host.lease
        assert lease is not None
        assert lease.alive_until is not None
        alive_until = lease.alive_until
        await skipping.sleep(timedelta(seconds=60))
        assert not memory.host.released
        await handle.result()
        host.mute = False
        host.stop.set()
    assert memory.host.released == [(7, ReleaseReason.LOST, ReleaseStatus.RELEASED)]
    assert await skipping.get_current_time() >= alive_until
    assert memory.host.environments == {GROUP: EnvironmentState.OWED}


@pytest.mark.usefixtures("hasty")
async def test_host_that_is_in_contact_again_is_attached_again(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    """P4: an outage of Temporal or of the network stops no work: same epoch, a new watch."""
    host = ScriptedHost(memory)
    async with workflow_of(skipping, memory, host):
        await wait_until_async(host.running.is_set)
        host.mute = True
        host.running.clear()
        await skipping.sleep(timedelta(seconds=20))
        host.mute = False
        await memory.contact()
        await skipping.sleep(timedelta(seconds=LOST_CHECK_SECONDS))
        await wait_until_async(host.running.is_set)
        assert not memory.host.released
        assert memory.host.lease is not None
        assert memory.host.lease.epoch == 7
        host.stop.set()


async def test_ending_lease_is_released_and_the_host_cleaned(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    host = ScriptedHost(memory)
    async with workflow_of(skipping, memory, host) as handle:
        await wait_until_async(host.running.is_set)
        lease = memory.host.lease
        assert lease is not None
        lease.state, lease.group_state = LeaseState.ENDING, TaskGroupState.COMPLETE
        await handle.signal(ManagerWorkflow.poke)
        await wait_until_async(lambda: "clean" in host.calls)
    assert memory.host.released == [(7, ReleaseReason.GROUP_ENDED, ReleaseStatus.RELEASED)]
    assert memory.host.environments == {GROUP: EnvironmentState.GONE}


@pytest.mark.usefixtures("hasty")
async def test_silent_host_without_a_lease_owes_its_environments(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    memory.host.lease = None
    memory.host.environments[GROUP] = EnvironmentState.READY
    async with workflow_of(skipping, memory, None) as handle:
        # The teardown finds nobody; then the silence becomes a loss.
        await asyncio.wait_for(handle.result(), 30)
    assert memory.host.released == [(None, ReleaseReason.LOST, ReleaseStatus.RELEASED)]
    assert memory.host.environments == {GROUP: EnvironmentState.OWED}


async def test_host_that_ignores_the_end_of_its_lease_is_left_behind(
    skipping: WorkflowEnvironment, memory: MemoryHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "BACKSTOP_SECONDS", 0.3)
    host = ScriptedHost(memory)
    async with workflow_of(skipping, memory, host) as handle:
        await wait_until_async(host.running.is_set)
        host.stubborn = True
        memory.host.lease = Lease(8, GROUP)
        await handle.signal(ManagerWorkflow.poke)
        await wait_until_async(lambda: host.calls.count("run") == 2)
        assert memory.host.lease is not None
        assert memory.host.lease.state is LeaseState.ACTIVE
        host.stop.set()


async def test_long_history_continues_as_new_under_the_same_lease(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    host = ScriptedHost(memory)
    async with workflow_of(skipping, memory, host) as handle:
        await wait_until_async(host.running.is_set)
        for _ in range(MESSAGES_BEFORE_CONTINUE_AS_NEW + 5):
            await handle.signal(ManagerWorkflow.poke)
        await wait_until_async(lambda: host.calls.count("run") == 2, timeout=30)
        assert (await handle.describe()).run_id != handle.first_execution_run_id
        assert memory.host.lease is not None
        assert (memory.host.lease.epoch, memory.host.lease.state) == (7, LeaseState.ACTIVE)
        assert not memory.host.released
        host.stop.set()


async def test_agent_that_stops_in_order_says_goodbye_itself(
    skipping: WorkflowEnvironment, memory: MemoryHost
) -> None:
    """The workflow releases nothing while the liveness clock of the lease runs."""
    host = ScriptedHost(memory)
    async with workflow_of(skipping, memory, host) as handle:
        await wait_until_async(host.running.is_set)
        host.stop.set()
        await wait_until_async(lambda: not host.running.is_set())
        await handle.signal(ManagerWorkflow.poke)
        await skipping.sleep(timedelta(seconds=30))
        assert host.calls == ["prepare", "run"]
        assert not memory.host.released
        memory.host.lease, memory.host.offline = None, True  # what goodbye does
        memory.host.environments.clear()
        await handle.signal(ManagerWorkflow.poke)
        await handle.result()
