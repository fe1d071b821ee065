"""How our workflows call activities: timeouts, retries and queues, decided once."""

from datetime import timedelta
from uuid import UUID

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from mitosis.contracts.temporal_names import host_task_queue

SUMMARY_LENGTH = 60
HOST_TAKES_WITHIN = timedelta(seconds=10)
"""A host that has not taken an activity by then is unreachable (protocol P6)."""
HOST_BEATS_WITHIN = timedelta(seconds=5)
"""A killed host is noticed after 2.3 to 4.6 s; that is a reason to look, and proves nothing (P4)."""


CONTROL_BEATS_WITHIN = timedelta(seconds=3)
"""A control worker that was killed in the middle of an activity is noticed then, and another does it."""
WORKFLOW_TASK_WITHIN = timedelta(seconds=5)
"""As that, for a worker killed while it decided. Deciding takes 20 ms, replaying the longest history
(``HANDLED_BEFORE_CONTINUE_AS_NEW``) 0.5 s, with as many beside it as ``WorkerLimits`` says. Temporal's
own default is 10 s."""


def with_database(summary: str) -> ActivityConfig:
    """An activity of the store that looks at rows and does what they ask for.

    It ensures a goal, so it is retried for ever unless its error says otherwise, and an attempt that
    outlives its successor (its worker cannot reach Temporal) finds nothing left to do.
    """
    return ActivityConfig(
        **in_order(summary),
        heartbeat_timeout=CONTROL_BEATS_WITHIN,
    )


def in_order(summary: str) -> ActivityConfig:
    """As :func:`with_database`, for what must not happen after the next one: a verb of somebody.

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
    """An activity of a host: one attempt, because the workflow and not Temporal decides what comes next."""
    return ActivityConfig(
        task_queue=host_task_queue(manager_id),
        summary=summary[:SUMMARY_LENGTH],
        schedule_to_start_timeout=HOST_TAKES_WITHIN,
        start_to_close_timeout=timedelta(days=3650),
        heartbeat_timeout=HOST_BEATS_WITHIN,
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
