"""Whole lives of our workflows on a time-skipping server, for the golden histories.

``tools/record_histories.py`` records them; ``test_histories.py`` replays what was recorded.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.control import (
    Cancel,
    Close,
    Complete,
    HookVerdict,
    ManagerInput,
    Reopen,
    TaskGroupInput,
)
from mitosis.contracts.lifecycle import LeaseState, TaskGroupState
from mitosis.contracts.run_control import Cancel as RunCancel
from mitosis.contracts.run_control import RunInput
from mitosis.contracts.schedule_control import ScheduledRunInput
from mitosis.contracts.temporal_names import (
    CONTROL_TASK_QUEUE,
    SCHEDULER_WORKFLOW_ID,
    manager_workflow_id,
    run_workflow_id,
    task_group_workflow_id,
)
from tests.support.waiting import wait_until_async
from tests.workflow.agent import ScriptedHost, host_worker
from tests.workflow.memory import Group, Host, Lease, MemoryGroups, MemoryHost, RefusingGroups
from tests.workflow.memory_runs import MemoryRuns, Run
from tests.workflow.running import running
from workflows.client import ControlClient
from workflows.manager import ManagerWorkflow
from workflows.options import WORKFLOW_TASK_WITHIN
from workflows.poke_loop import MESSAGES_BEFORE_CONTINUE_AS_NEW
from workflows.run import RunWorkflow
from workflows.scheduled_run import ScheduledRunWorkflow
from workflows.scheduler import SchedulerWorkflow
from workflows.task_group import TaskGroupWorkflow

AnyHandle = WorkflowHandle[Any, Any]
Scenario = Callable[[WorkflowEnvironment], Awaitable[AnyHandle]]


async def start_group(skipping: WorkflowEnvironment, group: Group) -> AnyHandle:
    return await skipping.client.start_workflow(
        TaskGroupWorkflow.run,
        TaskGroupInput(task_group_id=group.uuid),
        id=task_group_workflow_id(group.uuid),
        task_queue=CONTROL_TASK_QUEUE,
        task_timeout=WORKFLOW_TASK_WITHIN,
    )


async def start_manager(skipping: WorkflowEnvironment, memory: MemoryHost) -> AnyHandle:
    await memory.contact()
    return await skipping.client.start_workflow(
        ManagerWorkflow.run,
        ManagerInput(manager_id=memory.host.uuid),
        id=manager_workflow_id(memory.host.uuid),
        task_queue=CONTROL_TASK_QUEUE,
        task_timeout=WORKFLOW_TASK_WITHIN,
    )


async def start_scheduler(skipping: WorkflowEnvironment) -> AnyHandle:
    return await skipping.client.start_workflow(
        SchedulerWorkflow.run,
        id=SCHEDULER_WORKFLOW_ID,
        task_queue=CONTROL_TASK_QUEUE,
        task_timeout=WORKFLOW_TASK_WITHIN,
    )


@asynccontextmanager
async def offered(
    skipping: WorkflowEnvironment, setup: HookVerdict = HookVerdict.READY
) -> AsyncIterator[tuple[AnyHandle, MemoryHost, ScriptedHost]]:
    """The workflow of a host that has just been offered a lease, and its agent."""
    memory = MemoryHost(skipping.get_current_time, Host(lease=Lease(7, uuid4())))
    host = ScriptedHost(memory)
    host.setup = setup
    async with (
        running(skipping, host=memory),
        host_worker(skipping.client, memory.host.uuid, host),
    ):
        yield await start_manager(skipping, memory), memory, host


async def ends(handle: AnyHandle, memory: MemoryHost) -> None:
    """Let the agent say goodbye; return when the workflow of its host has ended."""
    memory.host.offline = True
    await handle.signal(ManagerWorkflow.poke)
    await handle.result()


async def armed(handle: AnyHandle, times: int = 1) -> None:
    """Return when it has started so many timers: it has decided on what it observed, and sees no change."""

    async def timers_started() -> bool:
        events = (await handle.fetch_history()).events
        return sum(event.HasField("timer_started_event_attributes") for event in events) >= times

    await wait_until_async(timers_started)


async def auto_close(skipping: WorkflowEnvironment) -> AnyHandle:
    """A submission moves the time once; then the group closes itself, completes and settles."""
    now = await skipping.get_current_time()
    group = Group(auto_close_after=timedelta(hours=1), last_submitted_at=now)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await armed(handle)
        group.last_submitted_at = now + timedelta(minutes=10)
        await handle.result()
    return handle


async def failed_setups(skipping: WorkflowEnvironment) -> AnyHandle:
    """The setup fails on the last host that may serve a closed group, which ends."""
    now = await skipping.get_current_time()
    deadline = now + timedelta(hours=1)
    group = Group(state=TaskGroupState.CLOSED, ready=3, close_deadline=deadline)
    async with running(skipping, groups=MemoryGroups(skipping.get_current_time, group)):
        handle = await start_group(skipping, group)
        await armed(handle)
        group.setup_failed = True
        await handle.signal(TaskGroupWorkflow.poke)
        await handle.result()
    return handle


async def verbs(skipping: WorkflowEnvironment) -> AnyHandle:
    """Every verb, as update and as signal, one of them refused; a forced end in chunks."""
    group = Group(ready=25, live_leases=1)
    groups = MemoryGroups(skipping.get_current_time, group)
    control = ControlClient(skipping.client)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await control.execute_verb(group.uuid, Close())
        await control.execute_verb(group.uuid, Reopen())
        await handle.signal("close")
        await handle.signal("reopen", None)
        await handle.signal("close", {})
        await control.execute_verb(group.uuid, Complete(force=True, reason="enough"))
        await wait_until_async(lambda: group.state is TaskGroupState.COMPLETE)
        before = groups.calls.count("reopen")
        await handle.signal("reopen")
        await wait_until_async(lambda: groups.calls.count("reopen") > before)
        group.live_leases = 0
        await handle.signal(TaskGroupWorkflow.poke)
        await handle.result()
    return handle


async def cancelled_by_temporal(skipping: WorkflowEnvironment) -> AnyHandle:
    group = Group(ready=3, running=1)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await wait_until_async(lambda: groups.calls)
        await handle.cancel()
        await wait_until_async(lambda: group.cancelled == 3)
        group.running = 0
        await handle.signal(TaskGroupWorkflow.poke)
        await handle.result()
    return handle


async def cancelled_by_verb(skipping: WorkflowEnvironment) -> AnyHandle:
    group = Group(ready=1)
    async with running(skipping, groups=MemoryGroups(skipping.get_current_time, group)):
        handle = await start_group(skipping, group)
        await handle.signal("cancel", Cancel(reason="wrong input", grace_seconds=1))
        await handle.result()
    return handle


async def lease_from_offer_to_teardown(skipping: WorkflowEnvironment) -> AnyHandle:
    async with offered(skipping) as (handle, memory, host):
        await wait_until_async(host.running.is_set)
        lease = memory.host.lease
        assert lease is not None
        lease.state, lease.group_state = LeaseState.ENDING, TaskGroupState.COMPLETE
        await handle.signal(ManagerWorkflow.poke)
        await wait_until_async(lambda: "clean" in host.calls)
        await ends(handle, memory)
    return handle


async def lease_timers(skipping: WorkflowEnvironment) -> AnyHandle:
    """Each time for which a lease is safe is over once, and the scheduler decides about the lease."""
    async with offered(skipping) as (handle, memory, host):
        await wait_until_async(host.running.is_set)
        lease = memory.host.lease
        assert lease is not None
        memory.in_contact = True
        for count, what in enumerate(("affinity", "idle", "ask_back"), start=1):
            lease.turn = (what, await skipping.get_current_time() + timedelta(seconds=1))
            await handle.signal(ManagerWorkflow.poke)
            await wait_until_async(partial(_has_decided, memory, count))
        lease.state, lease.group_state = LeaseState.ENDING, TaskGroupState.COMPLETE
        await handle.signal(ManagerWorkflow.poke)
        await wait_until_async(lambda: "clean" in host.calls)
        memory.in_contact = False
        await ends(handle, memory)
    return handle


def _has_decided(memory: MemoryHost, times: int) -> bool:
    return len(memory.decisions) >= times


async def host_lost(skipping: WorkflowEnvironment) -> AnyHandle:
    async with offered(skipping) as (handle, _, host):
        await wait_until_async(host.running.is_set)
        host.mute = True
        await handle.result()
        host.mute = False
        host.stop.set()
    return handle


async def setup_failed(skipping: WorkflowEnvironment) -> AnyHandle:
    async with offered(skipping, HookVerdict.FAILED) as (handle, memory, _):
        await wait_until_async(lambda: memory.host.released)
        await ends(handle, memory)
    return handle


async def offer_unreachable(skipping: WorkflowEnvironment) -> AnyHandle:
    memory = MemoryHost(skipping.get_current_time, Host(lease=Lease(7, uuid4())))
    async with running(skipping, host=memory):
        handle = await start_manager(skipping, memory)
        await wait_until_async(lambda: memory.host.released, timeout=30)
        await ends(handle, memory)
    return handle


async def rounds(skipping: WorkflowEnvironment) -> AnyHandle:
    memory = MemoryHost(skipping.get_current_time, Host())
    async with running(skipping, host=memory):
        handle = await start_scheduler(skipping)
        await wait_until_async(lambda: memory.rounds == 1)
        await asyncio.gather(*(handle.signal(SchedulerWorkflow.poke) for _ in range(5)))
        await wait_until_async(lambda: memory.rounds >= 2)
        await handle.terminate()
    return handle


async def refused(skipping: WorkflowEnvironment) -> AnyHandle:
    """A settlement that the store refuses a few times, and a poke during one of the pauses."""
    group = Group(state=TaskGroupState.COMPLETE)
    groups = RefusingGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        await armed(handle, 2)
        await handle.signal(TaskGroupWorkflow.poke)
        await handle.result()
    return handle


async def group_continued(skipping: WorkflowEnvironment) -> AnyHandle:
    """The first of two runs, with verbs among its messages."""
    group = Group(running=1)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        handle = await start_group(skipping, group)
        for turn in range(MESSAGES_BEFORE_CONTINUE_AS_NEW + 2):
            await handle.signal("close" if turn % 75 == 10 else TaskGroupWorkflow.poke)
            if turn % 75 == 40:
                await ControlClient(skipping.client).execute_verb(group.uuid, Reopen())
        await wait_until_async(lambda: is_continued(handle), timeout=30)
        await handle.terminate()
    return first_run(skipping, handle)


async def manager_continued(skipping: WorkflowEnvironment) -> AnyHandle:
    """The first of two runs; a lease goes on."""
    async with offered(skipping) as (handle, _, host):
        await wait_until_async(host.running.is_set)
        for _ in range(MESSAGES_BEFORE_CONTINUE_AS_NEW + 2):
            await handle.signal(ManagerWorkflow.poke)
        await wait_until_async(lambda: is_continued(handle), timeout=30)
        host.stop.set()
        await handle.terminate()
    return first_run(skipping, handle)


async def scheduler_continued(skipping: WorkflowEnvironment) -> AnyHandle:
    """The first of two runs."""
    memory = MemoryHost(skipping.get_current_time, Host())
    async with running(skipping, host=memory):
        handle = await start_scheduler(skipping)
        for _ in range(MESSAGES_BEFORE_CONTINUE_AS_NEW + 2):
            await handle.signal(SchedulerWorkflow.poke)
        await wait_until_async(lambda: is_continued(handle), timeout=30)
        await handle.terminate()
    return first_run(skipping, handle)


async def is_continued(handle: AnyHandle) -> bool:
    return (await handle.describe()).run_id != handle.first_execution_run_id


def first_run(skipping: WorkflowEnvironment, handle: AnyHandle) -> AnyHandle:
    return skipping.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)


async def start_run(skipping: WorkflowEnvironment, run: Run) -> AnyHandle:
    return await skipping.client.start_workflow(
        RunWorkflow.run,
        RunInput(run_id=run.uuid),
        id=run_workflow_id(run.uuid),
        task_queue=CONTROL_TASK_QUEUE,
        task_timeout=WORKFLOW_TASK_WITHIN,
    )


async def run_timed_out(skipping: WorkflowEnvironment) -> AnyHandle:
    """A run whose time limit is moved once, and passes."""
    now = await skipping.get_current_time()
    run = Run(deadline=now + timedelta(hours=2))
    async with running(skipping, runs=MemoryRuns(skipping.get_current_time, run)):
        handle = await start_run(skipping, run)
        await armed(handle)
        run.deadline = now + timedelta(hours=1)
        await handle.signal(RunWorkflow.poke)
        await armed(handle, 2)
        await handle.result()
    return handle


async def run_cancelled(skipping: WorkflowEnvironment) -> AnyHandle:
    """A run that a signal cancels, after some that have no effect."""
    run = Run()
    memory = MemoryRuns(skipping.get_current_time, run)
    async with running(skipping, runs=memory):
        handle = await start_run(skipping, run)
        await wait_until_async(lambda: memory.looks > 0)
        await handle.signal("cancel", {"grace": 1})
        await handle.signal("unknown", 1)
        await handle.signal("cancel", {"reason": "enough", "grace_seconds": 3})
        await handle.result()
    assert run.cancels == [RunCancel(reason="enough", grace_seconds=3)]
    return handle


async def run_cancelled_by_temporal(skipping: WorkflowEnvironment) -> AnyHandle:
    """A run that ``temporal workflow cancel`` cancels."""
    run = Run()
    memory = MemoryRuns(skipping.get_current_time, run)
    async with running(skipping, runs=memory):
        handle = await start_run(skipping, run)
        await wait_until_async(lambda: memory.looks > 0)
        await handle.cancel()
        await handle.result()
    assert [cancel.reason for cancel in run.cancels] == ["temporal workflow cancel"]
    return handle


async def scheduled_run_started(skipping: WorkflowEnvironment) -> AnyHandle:
    """A time of a schedule whose run is started at the second attempt."""
    memory = MemoryRuns(skipping.get_current_time, Run())
    memory.failures = 1
    async with running(skipping, runs=memory):
        handle = await skipping.client.start_workflow(
            ScheduledRunWorkflow.run,
            ScheduledRunInput(schedule_id=memory.run.uuid, times="digest"),
            id=f"scheduled-run/{uuid4()}",
            task_queue=CONTROL_TASK_QUEUE,
            task_timeout=WORKFLOW_TASK_WITHIN,
        )
        await handle.result()
    return handle


SCENARIOS: Mapping[str, Scenario] = {
    "task_group_auto_close": auto_close,
    "task_group_failed_setups": failed_setups,
    "task_group_verbs": verbs,
    "task_group_cancelled_by_temporal": cancelled_by_temporal,
    "task_group_cancelled_by_verb": cancelled_by_verb,
    "manager_offer_to_teardown": lease_from_offer_to_teardown,
    "manager_lease_timers": lease_timers,
    "manager_host_lost": host_lost,
    "manager_setup_failed": setup_failed,
    "manager_offer_unreachable": offer_unreachable,
    "scheduler_rounds": rounds,
    "task_group_refused": refused,
    "task_group_continued": group_continued,
    "manager_continued": manager_continued,
    "scheduler_continued": scheduler_continued,
    "run_timed_out": run_timed_out,
    "run_cancelled": run_cancelled,
    "run_cancelled_by_temporal": run_cancelled_by_temporal,
    "scheduled_run_started": scheduled_run_started,
}
