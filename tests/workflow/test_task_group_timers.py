"""Auto-close, close deadline, cancel and the length of the history of a task group, with time skipping."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.control import Cancel, Close, GroupView, VerbRequest
from mitosis.contracts.lifecycle import TaskGroupResult, TaskGroupState
from tests.support.waiting import wait_until_async
from tests.workflow.memory import Clock, Group, MemoryGroups, RefusingGroups
from tests.workflow.running import running
from tests.workflow.scenarios import AnyHandle, armed, is_continued, start_group
from workflows.client import ControlClient
from workflows.poke_loop import MESSAGES_BEFORE_CONTINUE_AS_NEW
from workflows.task_group import TaskGroupWorkflow

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


def open_for(group: Group, since: datetime) -> timedelta:
    """The server jumps on as soon as nobody waits for it, so its time afterwards says nothing."""
    assert group.closed_at is not None
    return group.closed_at - since


@pytest.mark.spec("S002-31", "S002-33", "S002-131", "S002-103")
async def test_auto_close_after_inactivity(skipping: WorkflowEnvironment) -> None:
    now = await skipping.get_current_time()
    group = Group(auto_close_after=HOUR, last_submitted_at=now)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        summary = await (await start_group(skipping, group)).result()
    assert summary.state is TaskGroupState.COMPLETE
    assert summary.result is TaskGroupResult.SUCCESS
    assert HOUR <= open_for(group, now) < HOUR + MINUTE
    assert groups.calls == ["observe", "close_if_inactive", "finalize", "settle"]


@pytest.mark.spec("S002-119")
async def test_submission_only_moves_the_time(skipping: WorkflowEnvironment) -> None:
    """The timer is armed again when it fires: no signal and no timer per submission."""
    now = await skipping.get_current_time()
    group = Group(auto_close_after=HOUR, last_submitted_at=now)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await armed(handle)
        for minute in range(1, 50):
            group.last_submitted_at = now + minute * MINUTE
        await handle.result()
    assert HOUR + 49 * MINUTE <= open_for(group, now) < HOUR + 50 * MINUTE
    assert groups.calls.count("close_if_inactive") == 2
    history = await handle.fetch_history()
    assert sum(event.HasField("timer_started_event_attributes") for event in history.events) == 2


@pytest.mark.spec("S002-33")
async def test_shorter_timeout_counts_while_the_timer_sleeps(skipping: WorkflowEnvironment) -> None:
    now = await skipping.get_current_time()
    group = Group(auto_close_after=timedelta(days=7), last_submitted_at=now)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await armed(handle)
        group.auto_close_after = HOUR
        await handle.signal(TaskGroupWorkflow.poke)
        await handle.result()
    assert HOUR <= open_for(group, now) < HOUR + MINUTE


async def test_a_group_whose_setup_failed_everywhere_ends_within_its_deadline(
    skipping: WorkflowEnvironment,
) -> None:
    """Its own timer is an hour away; the host that fails last pokes it."""
    now = await skipping.get_current_time()
    group = Group(state=TaskGroupState.CLOSED, ready=25, close_deadline=now + HOUR)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await armed(handle)
        group.setup_failed = True
        await handle.signal(TaskGroupWorkflow.poke)
        summary = await handle.result()
    assert summary.result is TaskGroupResult.SETUP_FAILED
    assert (summary.cancelled, summary.state) == (25, TaskGroupState.COMPLETE)
    ended = ["end_after_failed_setups", *["discard"] * 3, "observe", "finalize", "settle"]
    assert groups.calls == ["observe", "observe", *ended]


@pytest.mark.spec("S002-132")
async def test_a_timeout_that_is_taken_away_closes_nothing(skipping: WorkflowEnvironment) -> None:
    now = await skipping.get_current_time()
    group = Group(auto_close_after=HOUR, last_submitted_at=now)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await armed(handle)
        group.auto_close_after = None
        await handle.signal(TaskGroupWorkflow.poke)
        await wait_until_async(lambda: groups.calls.count("observe") == 2)
        await skipping.sleep(5 * HOUR)
        assert (group.state, group.closed_at) == (TaskGroupState.OPEN, None)
        await ControlClient(skipping.client).execute_verb(group.uuid, Close())
        await handle.result()
    assert "close_if_inactive" not in groups.calls


@pytest.mark.spec("C-08")
async def test_close_deadline(skipping: WorkflowEnvironment) -> None:
    now = await skipping.get_current_time()
    group = Group(auto_close_after=HOUR, last_submitted_at=now, close_deadline=now + HOUR / 2)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        await (await start_group(skipping, group)).result()
    assert HOUR / 2 <= open_for(group, now) < HOUR / 2 + MINUTE


@pytest.mark.spec("S002-105", "C-08")
async def test_a_closed_group_is_completed_by_force_at_its_close_deadline(
    skipping: WorkflowEnvironment,
) -> None:
    now = await skipping.get_current_time()
    group = Group(state=TaskGroupState.CLOSED, ready=25, close_deadline=now + HOUR)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        summary = await (await start_group(skipping, group)).result()
    assert summary.state is TaskGroupState.COMPLETE
    assert summary.cancelled == 25
    assert groups.calls.count("close_if_inactive") == 1
    assert groups.calls.count("discard") == 3


@pytest.mark.spec("C-10")
async def test_cancel_discards_in_chunks_and_waits_for_what_runs(
    skipping: WorkflowEnvironment,
) -> None:
    group = Group(ready=25, running=1, live_leases=1)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        control = ControlClient(skipping.client)
        view = await control.execute_verb(group.uuid, Cancel(grace_seconds=5))
        assert view.state is TaskGroupState.CANCELLED
        await wait_until_async(lambda: group.cancelled == 25)
        assert group.result is None
        group.running, group.cancelled = 0, 26
        await handle.signal(TaskGroupWorkflow.poke)
        await wait_until_async(lambda: groups.calls[-1] == "observe")
        assert group.result is None
        group.live_leases = 0
        await handle.signal(TaskGroupWorkflow.poke)
        summary = await handle.result()
    assert summary.result is TaskGroupResult.CANCELLED
    assert summary.cancelled == 26
    assert groups.calls.count("discard") == 3


async def test_temporal_cancel_is_the_cancel_verb(skipping: WorkflowEnvironment) -> None:
    group = Group(ready=3)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await wait_until_async(lambda: groups.calls)
        await handle.cancel()
        summary = await handle.result()
    assert summary.result is TaskGroupResult.CANCELLED
    assert summary.cancelled == 3


async def test_temporal_cancel_that_arrives_with_the_start_is_the_cancel_verb(
    skipping: WorkflowEnvironment,
) -> None:
    group = Group(ready=3)
    handle = await start_group(skipping, group)
    await handle.cancel()  # nobody polls yet
    async with running(skipping, groups=MemoryGroups(skipping.get_current_time, group)):
        summary = await handle.result()
    assert summary.result is TaskGroupResult.CANCELLED


async def test_temporal_cancel_of_an_ending_group_changes_nothing(
    skipping: WorkflowEnvironment,
) -> None:
    group = Group(state=TaskGroupState.COMPLETE, live_leases=1)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await wait_until_async(lambda: groups.calls)
        await handle.cancel()
        await wait_until_async(lambda: "cancel" in groups.calls)
        group.live_leases = 0
        await handle.signal(TaskGroupWorkflow.poke)
        summary = await handle.result()
    assert summary.result is TaskGroupResult.SUCCESS


async def test_unknown_group_ends_at_once(skipping: WorkflowEnvironment) -> None:
    async with running(skipping):
        handle = await start_group(skipping, Group(uuid=uuid4()))
        await handle.result()


async def test_long_history_continues_as_new(skipping: WorkflowEnvironment) -> None:
    group = Group()
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        first = handle.first_execution_run_id
        for _ in range(MESSAGES_BEFORE_CONTINUE_AS_NEW + 50):
            await handle.signal(TaskGroupWorkflow.poke)

        async def continued() -> bool:
            return (await handle.describe()).run_id != first

        await wait_until_async(continued, timeout=30)
        await ControlClient(skipping.client).execute_verb(group.uuid, Close())
        summary = await handle.result()
    assert summary.result is TaskGroupResult.SUCCESS


class PokedWhileLooking(MemoryGroups):
    """A change comes to be known while the workflow looks at what it changed, a few times."""

    handle: AnyHandle | None = None
    pokes = 3

    async def observe_task_group(self, task_group_id: UUID) -> GroupView:
        view = await super().observe_task_group(task_group_id)
        if self.handle is not None and self.pokes:
            self.pokes -= 1
            await self.handle.signal(TaskGroupWorkflow.poke)
        return view


async def test_what_was_put_off_for_a_look_is_not_paced_as_a_repetition(
    skipping: WorkflowEnvironment,
) -> None:
    """It would hold every settlement up for seconds."""
    group = Group(live_leases=1, state=TaskGroupState.COMPLETE)
    groups = PokedWhileLooking(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await wait_until_async(lambda: groups.calls)
        group.live_leases, groups.handle = 0, handle
        await handle.signal(TaskGroupWorkflow.poke)
        await handle.result()
    assert groups.calls.count("observe") >= 4
    assert groups.calls.count("settle") == 1
    history = await handle.fetch_history()
    assert not any(event.HasField("timer_started_event_attributes") for event in history.events)


async def test_what_changes_nothing_is_done_again_after_longer_and_longer_pauses(
    skipping: WorkflowEnvironment,
) -> None:
    group = Group(state=TaskGroupState.COMPLETE)
    groups = RefusingGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        await (await start_group(skipping, group)).result()
    pauses = [b - a for a, b in pairwise(groups.asked_at)]
    assert pauses == sorted(pauses)
    assert [round(pause / SECOND) for pause in pauses] == [1, 2, 4]


async def test_pokes_during_a_pause_make_it_no_longer(skipping: WorkflowEnvironment) -> None:
    """Only what was done counts as a repetition: looking again because of a poke is none."""
    group = Group(state=TaskGroupState.COMPLETE)
    groups = RefusingGroups(skipping.get_current_time, group)
    groups.refusals = 100
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        for pokes in range(4):
            await armed(handle, pokes + 1)
            await handle.signal(TaskGroupWorkflow.poke)
        groups.refusals = 0
        await handle.result()
    first, second, *_ = groups.asked_at
    assert second - first < 8 * SECOND  # after four longer pauses it would be 16


class HeldVerb(MemoryGroups):
    """The first verb takes as long as the test wants."""

    def __init__(self, clock: Clock, *groups: Group) -> None:
        super().__init__(clock, *groups)
        self.held, self.go = asyncio.Event(), asyncio.Event()

    async def apply(self, request: VerbRequest) -> GroupView:
        self.held.set()
        await self.go.wait()
        return await super().apply(request)


async def test_continue_as_new_counts_verbs_and_waits_for_the_one_in_progress(
    skipping: WorkflowEnvironment,
) -> None:
    group = Group(running=1)
    groups = HeldVerb(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        update = asyncio.create_task(handle.execute_update("close", result_type=GroupView))
        await groups.held.wait()
        for number in range(MESSAGES_BEFORE_CONTINUE_AS_NEW + 1):
            await handle.signal("reopen" if number % 2 else "close")
        await armed(handle)  # the wait for a calm, though no poke came
        await wait_until_async(lambda: no_timer_runs(handle), timeout=30)  # it is calm
        assert not await is_continued(handle)
        groups.go.set()
        assert (await update).state is TaskGroupState.CLOSED
        await wait_until_async(lambda: is_continued(handle), timeout=30)
        assert groups.calls.count("close") + groups.calls.count("reopen") < 10, "merged"
        assert group.state is TaskGroupState.CLOSED
        group.running = 0
        await handle.signal(TaskGroupWorkflow.poke)
        summary = await handle.result()
    assert summary.result is TaskGroupResult.SUCCESS


async def no_timer_runs(handle: AnyHandle) -> bool:
    """Return whether all timers have fired, and the workflow has decided on what followed."""
    before = (await handle.fetch_history()).events
    await handle.query("__temporal_workflow_metadata")  # all of its workflow tasks are done
    events = (await handle.fetch_history()).events
    started = sum(event.HasField("timer_started_event_attributes") for event in events)
    fired = sum(event.HasField("timer_fired_event_attributes") for event in events)
    return started == fired and len(events) == len(before)


async def test_a_wrong_message_changes_nothing_and_is_shown(skipping: WorkflowEnvironment) -> None:
    group = Group(ready=1)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        wrong: list[tuple[str, list[Any], str]] = [
            ("cancel", [{"grace_second": 1}], "did you mean grace_seconds"),
            ("complete", [{"cancel_running_tasks": True}], "unknown field"),
            ("close", ["now"], "an object or null"),
            ("reopen", [{}, {}], "one argument"),
            ("cancel", [{"grace_seconds": "1"}], "grace_seconds"),
            ("stop", [], "no such signal"),
        ]
        for name, arguments, says in wrong:
            await handle.signal(name, args=arguments)
            shown = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
            assert f"refused: signal {name}: " in shown.current_details
            assert says in shown.current_details
            if name == "stop":
                continue
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update(name, args=arguments)
            assert isinstance(refused.value.cause, ApplicationError)
            assert refused.value.cause.type == "invalid_request"
            assert says in refused.value.cause.message
        assert set(groups.calls) == {"observe"}
        assert group.state is TaskGroupState.OPEN
        await handle.terminate()
