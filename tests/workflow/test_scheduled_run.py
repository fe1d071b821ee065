"""The workflow of one time of a schedule: it starts the run, also after failures that may pass."""

from uuid import UUID, uuid4

from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.schedule_control import ScheduledRunInput, ScheduledRunSummary
from mitosis.contracts.temporal_names import CONTROL_TASK_QUEUE
from tests.workflow.memory_runs import MemoryRuns, Run
from tests.workflow.running import running
from tests.workflow.scenarios import AnyHandle
from workflows.scheduled_run import ScheduledRunWorkflow

MOST_EVENTS = 12


async def tick(environment: WorkflowEnvironment, schedule: UUID) -> AnyHandle:
    return await environment.client.start_workflow(
        ScheduledRunWorkflow.run,
        ScheduledRunInput(schedule_id=schedule, times="now"),
        id=f"scheduled-run/{uuid4()}",
        task_queue=CONTROL_TASK_QUEUE,
    )


async def test_a_time_ends_with_its_run_or_the_reason_in_few_events(
    skipping: WorkflowEnvironment,
) -> None:
    memory = MemoryRuns(skipping.get_current_time, Run())
    memory.failures = 2  # the database is away
    async with running(skipping, runs=memory):
        handle = await tick(skipping, memory.run.uuid)
        summary = ScheduledRunSummary.model_validate(await handle.result())
        assert summary == ScheduledRunSummary(run_id=memory.run.uuid)
        assert (await handle.describe()).history_length < MOST_EVENTS
        other = await (await tick(skipping, uuid4())).result()
    assert other.reason == "the schedule was deleted"
    assert len(memory.ticks) == 4, "it was tried until it was done"
    assert {(one.times, one.nominal_time.microsecond) for one in memory.ticks} == {("now", 0)}
