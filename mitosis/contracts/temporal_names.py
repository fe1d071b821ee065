"""Names that Temporal, PostgreSQL and the environment share with the outside. Standard library only."""

from uuid import UUID

NAMESPACE = "mitosis"
CONTROL_TASK_QUEUE = "mitosis-control"
SCHEDULER_WORKFLOW_ID = "scheduler"
POKE = "poke"
"""The signal that says only: look again."""

WAKE_CHANNEL = "mitosis_wake"
"""LISTEN/NOTIFY channel; payload = number of a group that was hungry and has work, or ``<number>!`` of a
group that was watched and changed, or that met an edge of its life, or one with another suffix of
``mitosis.store.pg.wake.Topic``."""
OUTBOX_CHANNEL = "mitosis_outbox"
"""LISTEN/NOTIFY channel without payload: the outbox has a row."""

INCARNATION_HEADER = "Mitosis-Incarnation"
"""HTTP header with the incarnation of the agent that calls (protocol P5)."""

SEARCH_ATTRIBUTES = {
    "MitosisState": "Keyword",
    "MitosisResult": "Keyword",
    "MitosisGroup": "Keyword",
    "MitosisTags": "KeywordList",
    "MitosisPriority": "Int",
    "MitosisManager": "Keyword",
}
"""Search attribute -> Temporal indexed value type."""


def host_task_queue(manager_id: UUID | str) -> str:
    """The Temporal task queue that only the agent of this manager polls."""
    return f"mitosis-host-{manager_id}"


def task_group_workflow_id(task_group_id: UUID | str) -> str:
    return f"task-group/{task_group_id}"


def manager_workflow_id(manager_id: UUID | str) -> str:
    return f"manager/{manager_id}"
