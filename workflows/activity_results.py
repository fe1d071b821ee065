"""Turns the outcome or the failure of a host activity into a :class:`LastActivityResult`. Pure."""

from typing import TypeAlias, assert_never

from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as TemporalTimeout

from mitosis.contracts.control import HookOutcome, HookVerdict, LeaseEnd, LeaseOutcome
from workflows.decisions import LastActivityResult, RunningActivity

Ended: TypeAlias = HookOutcome | LeaseOutcome | BaseException | None
"""An outcome, a failure, or None when the activity was cancelled before a host took it."""

WORKER_SHUTDOWN = "WorkerShutdown"
"""``ApplicationError.type`` when an agent stops while one of its activities runs (Temporal SDK)."""


def last_activity_result(running: RunningActivity, ended: Ended) -> LastActivityResult:
    """Return the result of ``running``, which has ended, for the next decision."""
    trouble: LeaseEnd | None
    setup_failed = False
    match ended:
        case HookOutcome():
            trouble, setup_failed = _hook(ended.verdict)
        case LeaseOutcome():
            trouble = None if ended.end is LeaseEnd.ENDING else ended.end
        case None:
            trouble = LeaseEnd.DETACHED
        case _:
            trouble = _failure(ended)
    return LastActivityResult(running.activity, running.epoch, trouble, setup_failed)


def _hook(verdict: HookVerdict) -> tuple[LeaseEnd | None, bool]:
    match verdict:
        case HookVerdict.READY | HookVerdict.CLEANED | HookVerdict.DEGRADED:
            return None, False
        case HookVerdict.FAILED:
            return None, True
        case HookVerdict.LEASE_LOST:
            return LeaseEnd.GONE, False
        case never:
            assert_never(never)


def _failure(error: BaseException) -> LeaseEnd:
    cause = error.cause if isinstance(error, ActivityError) else error
    match cause:
        case TemporalTimeout() if cause.type is TimeoutType.SCHEDULE_TO_START:
            return LeaseEnd.UNREACHABLE
        case TemporalTimeout():
            return LeaseEnd.SILENT
        case ApplicationError() if cause.type == WORKER_SHUTDOWN:
            return LeaseEnd.STOPPING
        case ApplicationError():
            return LeaseEnd.FAILED
        case _:
            return LeaseEnd.DETACHED
