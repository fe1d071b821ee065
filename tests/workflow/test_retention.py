"""The schedule of deletions: durable timers, a bounded history, and no end."""

from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.temporal_names import CONTROL_TASK_QUEUE, RETENTION_WORKFLOW_ID
from tests.support.waiting import wait_until_async
from tests.workflow.memory import MemoryRetention
from tests.workflow.running import running
from workflows.retention import EVENTS_BEFORE_CONTINUE_AS_NEW, RetentionWorkflow


async def test_it_calls_again_when_the_store_says_so_and_continues_as_new(
    skipping: WorkflowEnvironment,
) -> None:
    memory = MemoryRetention(1.0, 1.0, 1e9)
    began = await skipping.get_current_time()
    async with running(skipping, retention=memory):
        handle = await skipping.client.start_workflow(
            RetentionWorkflow.run, id=RETENTION_WORKFLOW_ID, task_queue=CONTROL_TASK_QUEUE
        )
        await handle.signal("unknown", 1)
        await wait_until_async(lambda: memory.calls == 3)
        await handle.signal("poke", 1)
        await wait_until_async(lambda: memory.calls == 4)
        assert await skipping.get_current_time() - began < timedelta(hours=1)
        await skipping.sleep(timedelta(minutes=61))
        await wait_until_async(lambda: memory.calls == 5)
        for _ in range(3):
            await skipping.sleep(timedelta(hours=40))
        history = await handle.fetch_history()
        assert len(history.events) < 2 * EVENTS_BEFORE_CONTINUE_AS_NEW
        assert memory.calls >= 100
        again = skipping.client.get_workflow_handle(RETENTION_WORKFLOW_ID)
        assert (await again.describe()).run_id != handle.first_execution_run_id
        await again.terminate()
