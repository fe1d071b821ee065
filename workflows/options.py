"""How our workflows call activities: timeouts, retries and task queues."""

from datetime import timedelta
from uuid import UUID

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig, LocalActivityConfig

from mitosis.contracts.liveness import HOST_TAKES_WITHIN
from mitosis.contracts.temporal_names import host_task_queue

SUMMARY_LENGTH = 60
HOST_HEARTBEAT_WITHIN = timedelta(seconds=5)
"""A killed host is noticed after 2.3 to 4.6 s, which is a reason to look and no proof of a loss (P4)."""
CONTROL_HEARTBEAT_WITHIN = timedelta(seconds=3)
"""After this time, another control worker runs the activity of a killed one."""
WORKFLOW_TASK_WITHIN = timedelta(seconds=5)
"""The same for a worker that was killed during a workflow task. A task takes 20 ms, the replay of the
longest history (``MESSAGES_BEFORE_CONTINUE_AS_NEW``) 0.5 s, with as many at once as ``WorkerLimits`` allows.
Temporal's default is 10 s."""


LOCAL_WITHIN = timedelta(seconds=3)
"""The one attempt of a local activity; shorter than 80 % of a workflow task, which is then kept alive by
events in the history."""


def in_workflow_task(summary: str) -> LocalActivityConfig:
    """Return the options of one attempt inside the workflow task."""
    return LocalActivityConfig(
        summary=summary[:SUMMARY_LENGTH],
        schedule_to_close_timeout=LOCAL_WITHIN,
        retry_policy=RetryPolicy(maximum_attempts=1),
    )


def with_database(summary: str) -> ActivityConfig:
    """Return the options of an activity that ensures a goal in the store.

    It is retried without a limit unless its error forbids it. An attempt that outlives its successor
    (its worker cannot reach Temporal) finds nothing left to do.
    """
    return ActivityConfig(
        **in_order(summary),
        heartbeat_timeout=CONTROL_HEARTBEAT_WITHIN,
    )


def in_order(summary: str) -> ActivityConfig:
    """Return the options of a verb, which must not execute after the next verb.

    The statement timeout of the store is 15 s, so no attempt outlives its successor.
    """
    return ActivityConfig(
        summary=summary[:SUMMARY_LENGTH],
        start_to_close_timeout=timedelta(seconds=20),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200),
            backoff_coefficient=2.0,
            maximum_interval=timedelta(seconds=10),
        ),
    )


def on_host(manager_id: UUID, summary: str) -> ActivityConfig:
    """Return the options of a host activity: one attempt, since the workflow decides what comes next."""
    return ActivityConfig(
        task_queue=host_task_queue(manager_id),
        summary=summary[:SUMMARY_LENGTH],
        schedule_to_start_timeout=HOST_TAKES_WITHIN,
        start_to_close_timeout=timedelta(days=3650),
        heartbeat_timeout=HOST_HEARTBEAT_WITHIN,
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
