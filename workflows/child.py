"""A task group as a step of another team's workflow: the one call that it needs.

The client of its worker carries ``MitosisPlugin`` and uses our namespace. An activity of that team creates
the group over HTTP beforehand.
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

    The group's workflow becomes a child of the caller and replaces a run that exists already, which
    loses nothing: the workflow keeps no state of its own. One workflow at a time can wait for a group;
    a second one terminates the child of the first. The end of the caller does not affect the group.
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
        # Temporal drops a child that is cancelled before its start; the group would then continue.
        child = await starting
        child.cancel()
    summary: GroupSummary = await child
    return summary
