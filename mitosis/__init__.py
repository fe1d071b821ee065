"""Mitosis: durable execution of task groups on fleets of machines.

The names below are the public interface for programs; each is imported when it is first used, so
that ``import mitosis`` costs nothing in a worker process.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mitosis.client.client import Client
    from mitosis.client.job_run import JobRun
    from mitosis.client.outcome import SetupFailed, TaskFailed, TaskNotRun
    from mitosis.client.sync import SyncClient
    from mitosis.client.sync_job_run import SyncJobRun
    from mitosis.client.sync_task_group import SyncTaskGroup
    from mitosis.client.task_group import TaskGroup
    from mitosis.contracts.allocation import CpuBinding, WorkerAllocationPlan
    from mitosis.contracts.errors import (
        AlreadyExists,
        Conflict,
        InvalidRequest,
        MitosisError,
        NotFound,
        PermissionDenied,
        TaskGroupClosed,
        TooLarge,
        Unauthenticated,
        Unavailable,
    )
    from mitosis.contracts.hook import HookSpec
    from mitosis.contracts.http import TaskGroupSpec
    from mitosis.contracts.task import RetryPolicy, TaskSubmission
    from mitosis.handlers import TaskOptions, handler
    from mitosis.jobs.building import Job, step
    from mitosis.worker.context import TaskContext, current_task

__all__ = [
    "AlreadyExists",
    "Client",
    "Conflict",
    "CpuBinding",
    "HookSpec",
    "InvalidRequest",
    "Job",
    "JobRun",
    "MitosisError",
    "NotFound",
    "PermissionDenied",
    "RetryPolicy",
    "SetupFailed",
    "SyncClient",
    "SyncJobRun",
    "SyncTaskGroup",
    "TaskContext",
    "TaskFailed",
    "TaskGroup",
    "TaskGroupClosed",
    "TaskGroupSpec",
    "TaskNotRun",
    "TaskOptions",
    "TaskSubmission",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "WorkerAllocationPlan",
    "current_task",
    "handler",
    "step",
]

_HOME = {
    "AlreadyExists": "mitosis.contracts.errors",
    "Client": "mitosis.client.client",
    "Conflict": "mitosis.contracts.errors",
    "CpuBinding": "mitosis.contracts.allocation",
    "HookSpec": "mitosis.contracts.hook",
    "InvalidRequest": "mitosis.contracts.errors",
    "Job": "mitosis.jobs.building",
    "JobRun": "mitosis.client.job_run",
    "MitosisError": "mitosis.contracts.errors",
    "NotFound": "mitosis.contracts.errors",
    "PermissionDenied": "mitosis.contracts.errors",
    "RetryPolicy": "mitosis.contracts.task",
    "SetupFailed": "mitosis.client.outcome",
    "SyncClient": "mitosis.client.sync",
    "SyncJobRun": "mitosis.client.sync_job_run",
    "SyncTaskGroup": "mitosis.client.sync_task_group",
    "TaskContext": "mitosis.worker.context",
    "TaskFailed": "mitosis.client.outcome",
    "TaskGroup": "mitosis.client.task_group",
    "TaskGroupClosed": "mitosis.contracts.errors",
    "TaskGroupSpec": "mitosis.contracts.http",
    "TaskNotRun": "mitosis.client.outcome",
    "TaskOptions": "mitosis.handlers",
    "TaskSubmission": "mitosis.contracts.task",
    "TooLarge": "mitosis.contracts.errors",
    "Unauthenticated": "mitosis.contracts.errors",
    "Unavailable": "mitosis.contracts.errors",
    "WorkerAllocationPlan": "mitosis.contracts.allocation",
    "current_task": "mitosis.worker.context",
    "handler": "mitosis.handlers",
    "step": "mitosis.jobs.building",
}


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
