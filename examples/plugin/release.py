"""The workflow of another team: it makes a task group a step of its own, and goes on with the summary.

Two ways of doing that, and both need a group that exists. It is made over HTTP in an activity, with the
token of *this* team: who may start a group is decided there, by that token, never by who can reach
Temporal. The token stays in the process; nothing in Temporal's history shows it.
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
    """What the workflow is asked for."""

    version: str
    packages: int = 5
    user_group: str | None = None
    """Whose hosts do the work; none: those of the team itself."""


@dataclass(frozen=True, slots=True)
class Release:
    """What it answers."""

    version: str
    result: str
    packages_built: int


@activity.defn
async def start_builds(order: Order) -> str:
    """Create the group, submit one task for each package, close it; the group's id.

    May be repeated: the group has the name of the workflow that wants it, and the tasks have a key.
    """
    name = activity.info().workflow_id or order.version
    with as_application_errors():  # a refusal is final; an API that is away is tried again
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
    """By name and in plain JSON, as a worker in any language can do it."""

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
