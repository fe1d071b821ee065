"""The workflow of a run: its time limits, its cancels, and how many events it costs."""

from datetime import timedelta
from uuid import uuid4

from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.lifecycle import RunState
from mitosis.contracts.run_control import RunSummary
from tests.support.waiting import wait_until_async
from tests.workflow.memory_runs import MemoryRuns, Run
from tests.workflow.running import running
from tests.workflow.scenarios import (
    AnyHandle,
    run_cancelled,
    run_cancelled_by_temporal,
    run_timed_out,
    start_run,
)
from workflows.poke_loop import MESSAGES_BEFORE_CONTINUE_AS_NEW
from workflows.run import RunWorkflow

MOST_OF_A_RUN, MOST_OF_A_STEP = 60, 10


async def length(handle: AnyHandle) -> int:
    return (await handle.describe()).history_length


async def test_a_time_limit_ends_a_run(skipping: WorkflowEnvironment) -> None:
    handle = await run_timed_out(skipping)
    assert RunSummary.model_validate(await handle.result()).state is RunState.FAILED
    said = await handle.describe()
    assert said.close_time is not None
    took = said.close_time - said.start_time
    assert timedelta(minutes=59) <= took < timedelta(minutes=61)
    assert await length(handle) < MOST_OF_A_RUN


async def test_a_signal_cancels_a_run(skipping: WorkflowEnvironment) -> None:
    handle = await run_cancelled(skipping)
    assert RunSummary.model_validate(await handle.result()).state is RunState.CANCELLED
    assert await length(handle) < MOST_OF_A_RUN


async def test_a_cancel_of_temporal_cancels_a_run(skipping: WorkflowEnvironment) -> None:
    handle = await run_cancelled_by_temporal(skipping)
    assert RunSummary.model_validate(await handle.result()).state is RunState.CANCELLED


async def test_each_step_costs_few_events_and_an_outage_as_few(
    skipping: WorkflowEnvironment,
) -> None:
    now = await skipping.get_current_time()
    run = Run(deadline=now + timedelta(days=1))
    memory = MemoryRuns(skipping.get_current_time, run)
    async with running(skipping, runs=memory):
        handle = await start_run(skipping, run)
        steps = 20
        for step in range(steps):
            await wait_until_async(lambda step=step: memory.looks > step)  # type: ignore[misc]
            await handle.signal(RunWorkflow.poke)
        await wait_until_async(lambda: memory.looks > steps)
        assert await length(handle) < MOST_OF_A_RUN + MOST_OF_A_STEP * steps
        before = await length(handle)
        memory.away = True
        await handle.signal(RunWorkflow.poke)
        await skipping.sleep(timedelta(hours=1))
        assert await length(handle) < before + MOST_OF_A_RUN
        memory.away = False
        run.state = RunState.SUCCESS
        assert RunSummary.model_validate(await handle.result()).state is RunState.SUCCESS


async def test_a_deleted_run_ends_its_workflow(skipping: WorkflowEnvironment) -> None:
    memory = MemoryRuns(skipping.get_current_time)
    async with running(skipping, runs=memory):
        handle = await start_run(skipping, Run(uuid=uuid4()))
        assert RunSummary.model_validate(await handle.result()).state is None


async def test_many_pokes_continue_as_new(skipping: WorkflowEnvironment) -> None:
    run = Run()
    memory = MemoryRuns(skipping.get_current_time, run)
    async with running(skipping, runs=memory):
        handle = await start_run(skipping, run)
        for _ in range(MESSAGES_BEFORE_CONTINUE_AS_NEW):
            await handle.signal(RunWorkflow.poke)
        again = skipping.client.get_workflow_handle(handle.id)

        async def is_new() -> bool:
            return (await again.describe()).run_id != handle.first_execution_run_id

        await skipping.sleep(timedelta(minutes=1))
        await wait_until_async(is_new)
        run.state = RunState.SUCCESS
        await again.signal(RunWorkflow.poke)
        await again.result()
