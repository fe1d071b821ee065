"""A task group as a step of somebody else's workflow: the one call such a workflow needs.

Its worker's client carries ``MitosisPlugin`` and lives in our namespace; the group is made beforehand, over
HTTP, in an activity of theirs.
"""

import asyncio
from uuid import UUID

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy

from mitosis.contracts.control import GroupSummary, TaskGroupInput
from mitosis.contracts.temporal_names import CONTROL_TASK_QUEUE, task_group_workflow_id
from workflows.options import WORKFLOW_TASK_WITHIN


async def run_task_group(task_group_id: UUID) -> GroupSummary:
    """Wait in a workflow until a task group is settled. Cancelling the wait cancels the group.

    The group's workflow becomes a child of the caller: a run that was going on already is replaced,
    which loses nothing, because it keeps no state of its own. So one workflow at a time waits for a
    group; of two, the earlier sees its child terminated. The end of the caller leaves the group alone.
    """
    start = workflow.start_child_workflow(
        "TaskGroupWorkflow",
        TaskGroupInput(task_group_id=task_group_id),
        id=task_group_workflow_id(task_group_id),
        task_queue=CONTROL_TASK_QUEUE,
        result_type=GroupSummary,
        id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
        parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        static_summary=f"Task group {task_group_id}",
        task_timeout=WORKFLOW_TASK_WITHIN,
    )
    starting = asyncio.create_task(start)
    try:
        child = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A child that is cancelled before it has started is forgotten, and its group would go on.
        child = await starting
        child.cancel()
    summary: GroupSummary = await child
    return summary
