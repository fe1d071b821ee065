"""What the ends of host activities mean."""

from uuid import UUID

import pytest
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    RetryState,
    TimeoutError,  # noqa: A004 Temporal's own
    TimeoutType,
)

from mitosis.contracts.control import (
    HookOutcome,
    HookVerdict,
    LeaseEnd,
    LeaseOutcome,
)
from workflows.activity_results import Ended, last_activity_result
from workflows.decisions import HostActivity, LastActivityResult, RunningActivity

GROUP, OTHER, HOST = UUID(int=1), UUID(int=2), UUID(int=3)
ATTACHED = RunningActivity(HostActivity.RUN, GROUP, 7)


def failed(cause: BaseException) -> ActivityError:
    error = ActivityError(
        "activity failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="host",
        activity_type="run_lease",
        activity_id="1",
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )
    error.__cause__ = cause
    return error


def timed_out(kind: TimeoutType) -> ActivityError:
    return failed(TimeoutError("late", type=kind, last_heartbeat_details=[]))


ENDS: dict[str, tuple[Ended, LeaseEnd | None, bool]] = {
    "ready": (HookOutcome(verdict=HookVerdict.READY), None, False),
    "cleaned": (HookOutcome(verdict=HookVerdict.CLEANED), None, False),
    "degraded": (HookOutcome(verdict=HookVerdict.DEGRADED), None, False),
    "setup failed": (HookOutcome(verdict=HookVerdict.FAILED), None, True),
    "refused": (HookOutcome(verdict=HookVerdict.LEASE_LOST), LeaseEnd.GONE, False),
    "drained": (LeaseOutcome(end=LeaseEnd.ENDING), None, False),
    "gone": (LeaseOutcome(end=LeaseEnd.GONE), LeaseEnd.GONE, False),
    "stopping": (LeaseOutcome(end=LeaseEnd.STOPPING), LeaseEnd.STOPPING, False),
    "detached": (LeaseOutcome(end=LeaseEnd.DETACHED), LeaseEnd.DETACHED, False),
    "never taken": (timed_out(TimeoutType.SCHEDULE_TO_START), LeaseEnd.UNREACHABLE, False),
    "no heartbeat": (timed_out(TimeoutType.HEARTBEAT), LeaseEnd.SILENT, False),
    "too long": (timed_out(TimeoutType.START_TO_CLOSE), LeaseEnd.SILENT, False),
    "agent stopped": (
        failed(ApplicationError("bye", type="WorkerShutdown")),
        LeaseEnd.STOPPING,
        False,
    ),
    "agent error": (failed(ApplicationError("broken")), LeaseEnd.FAILED, False),
    "cancelled": (failed(CancelledError("cancelled")), LeaseEnd.DETACHED, False),
    "cancelled before it began": (None, LeaseEnd.DETACHED, False),
}


@pytest.mark.parametrize(("ended", "trouble", "setup_failed"), ENDS.values(), ids=ENDS.keys())
def test_last_word(ended: Ended, trouble: LeaseEnd | None, setup_failed: bool) -> None:
    expected = LastActivityResult(HostActivity.RUN, 7, trouble, setup_failed)
    assert last_activity_result(ATTACHED, ended) == expected
