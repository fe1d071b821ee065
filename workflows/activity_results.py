"""What the end of a host activity means: an outcome or a failure as a :class:`LastActivityResult`. Pure."""

from typing import TypeAlias, assert_never

from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as TemporalTimeout

from mitosis.contracts.control import HookOutcome, HookVerdict, LeaseEnd, LeaseOutcome
from workflows.decisions import LastActivityResult, RunningActivity, Trouble

Ended: TypeAlias = HookOutcome | LeaseOutcome | BaseException | None
"""An outcome, a failure, or None when the activity was cancelled before anybody took it."""

WORKER_SHUTDOWN = "WorkerShutdown"
"""``ApplicationError.type`` when an agent stops while one of its activities runs (Temporal SDK)."""


def last_activity_result(running: RunningActivity, ended: Ended) -> LastActivityResult:
    """Turn the end of ``running`` into what the next decision may rely on."""
    trouble: Trouble | None
    setup_failed = False
    match ended:
        case HookOutcome():
            trouble, setup_failed = _hook(ended.verdict)
        case LeaseOutcome():
            trouble = _lease(ended.end)
        case None:
            trouble = Trouble.DETACHED
        case _:
            trouble = _failure(ended)
    return LastActivityResult(running.activity, running.epoch, trouble, setup_failed)


def _hook(verdict: HookVerdict) -> tuple[Trouble | None, bool]:
    match verdict:
        case HookVerdict.READY | HookVerdict.CLEANED | HookVerdict.DEGRADED:
            return None, False
        case HookVerdict.FAILED:
            return None, True
        case HookVerdict.LEASE_LOST:
            return Trouble.REFUSED, False
        case never:
            assert_never(never)


def _lease(end: LeaseEnd) -> Trouble | None:
    match end:
        case LeaseEnd.ENDING:
            return None
        case LeaseEnd.GONE:
            return Trouble.REFUSED
        case LeaseEnd.STOPPING:
            return Trouble.STOPPING
        case LeaseEnd.DETACHED:
            return Trouble.DETACHED
        case never:
            assert_never(never)


def _failure(error: BaseException) -> Trouble:
    cause = error.cause if isinstance(error, ActivityError) else error
    match cause:
        case TemporalTimeout() if cause.type is TimeoutType.SCHEDULE_TO_START:
            return Trouble.UNREACHABLE
        case TemporalTimeout():
            return Trouble.SILENT
        case ApplicationError() if cause.type == WORKER_SHUTDOWN:
            return Trouble.STOPPING
        case ApplicationError():
            return Trouble.FAILED
        case _:
            return Trouble.DETACHED
