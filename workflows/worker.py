"""The control worker: binds activities to their implementations. No workflow module imports this one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker, WorkerDeploymentConfig

from activities.managers import ManagerActivities, ManagerPort, SchedulerPort
from activities.retention import RetentionActivities, RetentionPort
from activities.runs import RunActivities, RunPort
from activities.task_groups import TaskGroupActivities, TaskGroupPort
from mitosis.contracts.temporal_names import CONTROL_TASK_QUEUE
from workflows.heartbeat import HeartbeatInterceptor

DEADLOCK_AFTER_SECONDS = 10.0
"""A workflow task that takes so long is a fault of its code; the server gives it to another worker after
``WORKFLOW_TASK_WITHIN``. The SDK assumes one after 2 s, which 10,000 signals at once take on a loaded machine
(0.7 s of CPU), and then cannot evict the workflow: the control worker never serves it again."""


@dataclass(frozen=True, slots=True)
class ControlPorts:
    """The ports that the activities use."""

    groups: TaskGroupPort
    managers: ManagerPort
    scheduler: SchedulerPort
    retention: RetentionPort
    runs: RunPort


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """How much one control worker does at once, and whether it polls for its build only."""

    max_cached_workflows: int = 1000
    max_workflow_tasks: int = 8
    """Few, so that each ends well within ``WORKFLOW_TASK_WITHIN`` when all arrive at once."""
    max_concurrent_activities: int = 50
    versioned: bool = True
    """Tests do without: a namespace costs the server 0.7 s of CPU time more with it."""


def control_activities(ports: ControlPorts) -> Sequence[Callable[..., Any]]:
    """Return every activity of the control task queue, bound to ``ports``."""
    groups = TaskGroupActivities(ports.groups)
    managers = ManagerActivities(ports.managers, ports.scheduler)
    runs = RunActivities(ports.runs)
    return (
        groups.observe,
        groups.apply,
        groups.close_if_inactive,
        groups.end_after_failed_setups,
        groups.discard,
        groups.finalize,
        groups.settle,
        managers.observe,
        managers.release,
        managers.decide_leases,
        managers.assign_round,
        RetentionActivities(ports.retention).delete_expired,
        runs.observe,
        runs.cancel,
        runs.start_scheduled,
    )


def control_worker(
    client: Client,
    ports: ControlPorts,
    limits: WorkerLimits | None = None,
    deployment: WorkerDeploymentConfig | None = None,
) -> Worker:
    """Return the Temporal worker of the control plane. ``client`` carries the ``ControlPlugin``.

    With a ``deployment`` it serves runs only while its version is current (``workflows.versions``).
    """
    limits = limits or WorkerLimits()
    worker = Worker(
        client,
        task_queue=CONTROL_TASK_QUEUE,
        activities=control_activities(ports),
        interceptors=[HeartbeatInterceptor()],
        deployment_config=deployment,
        max_cached_workflows=limits.max_cached_workflows,
        max_concurrent_workflow_tasks=limits.max_workflow_tasks,
        max_concurrent_activities=limits.max_concurrent_activities,
        # Workflows cached by a killed worker wait for this sticky timeout to pass (10 s by default).
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=2),
    )
    # The SDK has no public option for it; a test holds that this has the effect.
    tasks = vars(worker)["_workflow_worker"]
    tasks._deadlock_timeout_seconds = DEADLOCK_AFTER_SECONDS  # noqa: SLF001
    return worker
