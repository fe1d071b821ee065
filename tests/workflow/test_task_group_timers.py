"""Auto-close, close deadline and the endings of a task group, with time skipping."""

from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from mitosis.contracts.control import TaskGroupInput
from mitosis.contracts.lifecycle import TaskGroupResult, TaskGroupState
from mitosis.contracts.names import CONTROL_TASK_QUEUE, task_group_workflow_id
from tests.workflow.memory import Group, MemoryGroups
from tests.workflow.running import running
from workflows.task_group import TaskGroupWorkflow


async def test_auto_close_after_inactivity(skipping: WorkflowEnvironment) -> None:
    now = await skipping.get_current_time()
    group = Group(auto_close_after=timedelta(hours=1), last_submitted_at=now)
    groups = MemoryGroups(skipping.get_current_time, group)
    async with running(skipping, groups=groups):
        summary = await skipping.client.execute_workflow(
            TaskGroupWorkflow.run,
            TaskGroupInput(task_group_id=group.uuid),
            id=task_group_workflow_id(group.uuid),
            task_queue=CONTROL_TASK_QUEUE,
        )
    assert summary.state is TaskGroupState.COMPLETE
    assert summary.result is TaskGroupResult.SUCCESS
    assert await skipping.get_current_time() - now >= timedelta(hours=1)
    assert groups.calls == ["observe", "close_if_inactive", "finalize", "settle"]
