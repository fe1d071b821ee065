"""Mitosis as a Temporal plugin: what a client or worker needs to use our workflows.

``MitosisPlugin`` is for any of them (data converter, sandbox); ``ControlPlugin`` is for the control worker
and adds the workflows. Pass a plugin to ``Client.connect``; workers made with that client inherit it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import SandboxImportNotificationPolicy

from workflows.interception import OneArgument
from workflows.manager import ManagerWorkflow
from workflows.retention import RetentionWorkflow
from workflows.run import RunWorkflow
from workflows.scheduled_run import ScheduledRunWorkflow
from workflows.scheduler import SchedulerWorkflow
from workflows.task_group import TaskGroupWorkflow

PASSED_THROUGH = (
    "mitosis",
    "activities",
    "workflows",
    "pydantic",
    "pydantic_core",
    "annotated_types",
)
"""Modules that the sandbox does not reload for every workflow: 21 ms instead of 688."""

WORKFLOWS: Sequence[type] = (
    TaskGroupWorkflow,
    ManagerWorkflow,
    SchedulerWorkflow,
    RetentionWorkflow,
    RunWorkflow,
    ScheduledRunWorkflow,
)


class MitosisPlugin(SimplePlugin):
    """For any client, worker or replayer: pydantic payloads and our contracts in the sandbox."""

    def __init__(
        self,
        *,
        workflows: Sequence[type] | None = None,
        activities: Sequence[Callable[..., Any]] | None = None,
        policy: SandboxImportNotificationPolicy | None = None,
    ) -> None:
        """Configure the sandbox; ``policy`` decides what happens on an import that is not passed through."""

        def runner(before: WorkflowRunner | None) -> WorkflowRunner:
            return _with_passthrough(before, policy)

        super().__init__(
            "mitosis.control" if workflows else "mitosis",
            data_converter=pydantic_data_converter,
            workflows=workflows,
            activities=activities,
            workflow_runner=runner,
            interceptors=[OneArgument()] if workflows else None,
        )


class ControlPlugin(MitosisPlugin):
    """For the control worker and for replay: adds our workflows."""

    def __init__(
        self,
        *,
        activities: Sequence[Callable[..., Any]] | None = None,
        policy: SandboxImportNotificationPolicy | None = None,
    ) -> None:
        super().__init__(workflows=WORKFLOWS, activities=activities, policy=policy)


def _with_passthrough(
    before: WorkflowRunner | None, policy: SandboxImportNotificationPolicy | None
) -> WorkflowRunner:
    """Add our modules to the runner of another plugin or the caller; keep a runner of another kind."""
    runner = before or SandboxedWorkflowRunner()
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    restrictions = runner.restrictions.with_passthrough_modules(*PASSED_THROUGH)
    if policy is not None:
        restrictions = restrictions.with_import_notification_policy(policy)
    return replace(runner, restrictions=restrictions)
