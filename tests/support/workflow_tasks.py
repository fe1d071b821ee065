"""Which workflow tasks have failed."""

from collections.abc import Iterable

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent

UNHANDLED_COMMAND = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND


def failed_workflow_tasks(events: Iterable[HistoryEvent]) -> list[str]:
    """Return the messages of the workflow tasks that have failed by a fault of the worker.

    A workflow that completes or continues as new while a signal arrives is refused by the server
    ("unhandled command") and has its task again with the signal: that is no fault.
    """
    failures = [
        event.workflow_task_failed_event_attributes
        for event in events
        if event.HasField("workflow_task_failed_event_attributes")
    ]
    return [failed.failure.message for failed in failures if failed.cause != UNHANDLED_COMMAND]
