"""A workflow of another team that runs a task group as one of its steps and uses the summary.

There are two ways to run it, and both need an existing task group. An activity creates it over HTTP with
the token of *this* team: the token decides who may start a task group, not access to Temporal. The token
stays in the process and is never part of Temporal's history.
"""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from temporalio import activity, workflow
from temporalio.common import WorkflowIDReusePolicy

with workflow.unsafe.imports_passed_through():
    from activities.errors import as_application_errors
    from mitosis import Client, TaskGroupSpec, TaskSubmission
    from mitosis.contracts.errors import AlreadyExists
    from mitosis.contracts.http import TaskGroupInfo
    from workflows.child import run_task_group

TASK_QUEUE = "release-team"


@dataclass(frozen=True, slots=True)
class Order:
    """The input of the workflow."""

    version: str
    packages: int = 5
    user_group: str | None = None
    """User group whose hosts run the tasks; None for the team's own."""


@dataclass(frozen=True, slots=True)
class Release:
    """The result of the workflow."""

    version: str
    result: str
    packages_built: int


@activity.defn
async def start_builds(order: Order) -> str:
    """Create the task group, submit one task for each package, close it, and return its id.

    A retry is safe: the group has the name of the workflow, and the tasks have an idempotency key.
    """
    name = activity.info().workflow_id or order.version
    with as_application_errors():  # a refusal is final; an outage of the API is retried
        async with Client.connect() as client:
            group = await _group(client, TaskGroupSpec(name=name, group_name=order.user_group))
            if group.state == "open":
                tasks = (_build(order.version, number) for number in range(order.packages))
                await client.submit(group.task_group_id, tasks, idempotency_key=name)
                await client.close_group(group.task_group_id)
            return str(group.task_group_id)


async def _group(client: Client, spec: TaskGroupSpec) -> TaskGroupInfo:
    try:
        return await client.create_group(spec)
    except AlreadyExists:
        return await client.group(
            f"{spec.group_name}/{spec.name}" if spec.group_name else spec.name
        )


def _build(version: str, number: int) -> TaskSubmission:
    return TaskSubmission(command=["echo", f"building package {number} of {version}"])


@workflow.defn
class ReleaseWorkflow:
    """With our package: one call. Cancelling this workflow cancels the group and waits for it."""

    @workflow.run
    async def run(self, order: Order) -> Release:
        group = await workflow.execute_activity(
            start_builds, order, start_to_close_timeout=timedelta(minutes=2)
        )
        summary = await run_task_group(UUID(group))
        return Release(order.version, str(summary.result), summary.succeeded)


@workflow.defn
class ReleaseByName:
    """Run the child workflow by name and with plain JSON, as a worker in any language can."""

    @workflow.run
    async def run(self, order: Order) -> Release:
        group = await workflow.execute_activity(
            start_builds, order, start_to_close_timeout=timedelta(minutes=2)
        )
        summary = await workflow.execute_child_workflow(
            "TaskGroupWorkflow",
            {"task_group_id": group},
            id=f"task-group/{group}",
            task_queue="mitosis-control",
            id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            result_type=dict[str, object],
        )
        return Release(order.version, str(summary["result"]), int(str(summary["succeeded"])))
