"""Names of task queues, workflows, signals, search attributes and channels. Standard library only."""

from uuid import UUID

NAMESPACE = "mitosis"
DEPLOYMENT = "mitosis"
"""The worker deployment of our control workers: each of their builds is a version of it."""
CONTROL_TASK_QUEUE = "mitosis-control"
SCHEDULER_WORKFLOW_ID = "scheduler"
RETENTION_WORKFLOW_ID = "retention"
SCHEDULE_PREFIX = "schedule/"
"""Of the ids of our schedules in Temporal."""
NOMINAL_TIME = "TemporalScheduledStartTime"
"""Search attribute of Temporal's own: the time of its schedule for which a workflow was started."""
POKE = "poke"
"""The signal that says only: look again."""

WAKE_CHANNEL = "mitosis_wake"
"""LISTEN/NOTIFY channel. Payload: the number of a group and a suffix of ``mitosis.store.pg.wake.Topic``.

No suffix: waiting claims of the group may find work. ``!``: the group has changed."""
OUTBOX_CHANNEL = "mitosis_outbox"
"""LISTEN/NOTIFY channel without payload: the outbox has a row."""

INCARNATION_HEADER = "Mitosis-Incarnation"
"""HTTP header with the incarnation of the agent that calls (protocol P5)."""

SEARCH_ATTRIBUTES = {
    "MitosisState": "Keyword",
    "MitosisTaskGroup": "Keyword",
    "MitosisResult": "Keyword",
    "MitosisGroup": "Keyword",
    "MitosisTags": "KeywordList",
    "MitosisPriority": "Int",
    "MitosisManager": "Keyword",
    "MitosisJob": "Keyword",
}
"""Search attribute -> Temporal indexed value type."""


def host_task_queue(manager_id: UUID | str) -> str:
    """Return the Temporal task queue that only the agent of this manager polls."""
    return f"mitosis-host-{manager_id}"


def task_group_workflow_id(task_group_id: UUID | str) -> str:
    return f"task-group/{task_group_id}"


def run_workflow_id(run_id: UUID | str) -> str:
    return f"run/{run_id}"


def temporal_schedule_id(schedule_id: UUID | str) -> str:
    return f"{SCHEDULE_PREFIX}{schedule_id}"


def scheduled_run_workflow_id(schedule_id: UUID | str) -> str:
    """Return the id to which Temporal appends the nominal time."""
    return f"scheduled-run/{schedule_id}"


def manager_workflow_id(manager_id: UUID | str) -> str:
    return f"manager/{manager_id}"
