"""Chooses the next step of a workflow: pure functions of its last observation.

The workflows own waiting, retries and I/O; this module owns every *choice*. It has no state and no clock:
times arrive as seconds left. Rules: protocol P4 (two clocks), P8 (endings), P9 (environments).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never
from uuid import UUID

from mitosis.contracts.control import (
    EnvironmentView,
    GroupView,
    LeaseEnd,
    LeaseView,
    ManagerView,
    ReleaseReason,
)
from mitosis.contracts.lifecycle import EnvironmentState, LeaseState, TaskGroupState

LOST_CHECK_SECONDS = 10.0
"""How soon a host whose activity failed is observed again while its liveness clock runs out."""
BACKSTOP_SECONDS = 30.0
"""How long the activity that watches a lease may miss its end in PostgreSQL."""


# --- task groups ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finish:
    """The subject is done: return."""


@dataclass(frozen=True, slots=True)
class CloseIfInactive:
    """The auto-close time or the close deadline has passed."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Cancel a chunk of unclaimed tasks."""


@dataclass(frozen=True, slots=True)
class Finalize:
    """CLOSED and drained: make it COMPLETE."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Terminal, and no task, lease or environment is left: write the result."""


@dataclass(frozen=True, slots=True)
class EndAfterFailedSetups:
    """The setup has failed on every host that may serve it: cancel its tasks."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a poke, at most ``seconds`` (None = without a limit); after them do ``then`` or look again.

    ``look_after``: look also after so many seconds, and more rarely while nothing changes.
    """

    why: str
    seconds: float | None = None
    then: CloseIfInactive | None = None
    look_after: float | None = None

    @property
    def until_look(self) -> float | None:
        """The seconds until the first look; None = a poke alone ends the wait."""
        both = (self.seconds, self.look_after)
        return min((seconds for seconds in both if seconds is not None), default=None)


GroupStep: TypeAlias = (
    Finish | CloseIfInactive | Discard | EndAfterFailedSetups | Finalize | Settle | Wait
)


def group_step(view: GroupView) -> GroupStep:
    """Return the next step of a task group's workflow; Finish for a settled or unknown group."""
    if not view.exists or view.settled:
        return Finish()
    if view.discardable:
        return Discard()
    if view.setup_failed:
        return EndAfterFailedSetups()
    match view.state:
        case TaskGroupState.OPEN:
            return _open_group(view)
        case TaskGroupState.CLOSED:
            return _closed_group(view) if view.unfinished else Finalize()
        case TaskGroupState.COMPLETE | TaskGroupState.CANCELLED:
            return Settle() if view.settleable else _ended_group(view)
        case never:
            assert_never(never)


def _open_group(view: GroupView) -> GroupStep:
    inactive, deadline = view.auto_close_in_seconds, view.close_deadline_in_seconds
    due = [seconds for seconds in (inactive, deadline) if seconds is not None]
    if not due:
        return Wait(_waiting(view))
    if min(due) <= 0:
        return CloseIfInactive()
    why = "auto-close" if min(due) == inactive else "close deadline"
    return Wait(why, min(due), then=CloseIfInactive())


def _closed_group(view: GroupView) -> GroupStep:
    deadline = view.close_deadline_in_seconds
    if deadline is None:
        return Wait(_waiting(view))
    if deadline <= 0:
        return CloseIfInactive()
    return Wait(_waiting(view), deadline, then=CloseIfInactive())


def _ended_group(view: GroupView) -> Wait:
    """Wait for hosts. No poke comes when the time is over for which owed teardowns are waited for."""
    only_cleanup = not (view.unfinished or view.live_leases)
    return Wait(_waiting(view), view.cleanup_given_up_in_seconds if only_cleanup else None)


def _waiting(view: GroupView) -> str:
    if view.waiting_for:
        return view.waiting_for
    if view.state is TaskGroupState.OPEN:
        return "open: waiting for tasks or a verb"
    if view.unfinished:
        return f"{view.unfinished} unfinished tasks"
    if view.live_leases:
        return f"{view.live_leases} leases to be released"
    return f"{view.busy_environments} hosts to clean up"


# --- managers -------------------------------------------------------------------------------------


class HostActivity(StrEnum):
    """An activity on the host's own task queue, by its Temporal name."""

    PREPARE = "prepare_environment"
    RUN = "run_lease"
    CLEAN = "clean_environment"


@dataclass(frozen=True, slots=True)
class RunningActivity:
    """A host activity that has not ended."""

    activity: HostActivity
    task_group_id: UUID
    epoch: int | None
    check_requested_seconds: float | None = None
    """How long ago its cancellation was requested; None = never."""
    to_the_end: bool = False
    """True if the lease was already ENDING at start; the activity then returns once no task runs."""


@dataclass(frozen=True, slots=True)
class LastActivityResult:
    """How the last activity of an epoch ended; ``epoch`` None: the last teardown."""

    activity: HostActivity
    epoch: int | None
    trouble: LeaseEnd | None = None
    """Why it ended without doing its job; None: it did. For ``run_lease`` None means ENDING."""
    setup_failed: bool = False
    """The setup hook failed: this machine cannot serve the group."""
    hold_seconds: float = 0.0
    """How long from now the same activity must not start again."""


@dataclass(frozen=True, slots=True)
class KnownActivities:
    """The host activities of this workflow run. Losing them is harmless: they are started again."""

    lease: RunningActivity | None = None
    cleaning: RunningActivity | None = None
    lease_result: LastActivityResult | None = None
    cleaning_result: LastActivityResult | None = None


@dataclass(frozen=True, slots=True)
class StartHost:
    """Start an activity on the host's queue."""

    activity: HostActivity
    task_group_id: UUID
    epoch: int | None


@dataclass(frozen=True, slots=True)
class RequestLeaseCheck:
    """Make the activity that watches the lease check it, so that an ending is noticed at once."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop waiting for an activity whose lease is over and that does not return."""


@dataclass(frozen=True, slots=True)
class Release:
    """End an epoch; with none, declare the host lost."""

    epoch: int | None
    reason: ReleaseReason


@dataclass(frozen=True, slots=True)
class DecideLease:
    """The time is over for which the lease was safe: ask the scheduler to decide about it."""

    epoch: int
    what: str
    """Which time it was; see ``LeaseTurn``."""


ManagerStep: TypeAlias = (
    Finish | StartHost | RequestLeaseCheck | Abandon | Release | DecideLease | Wait
)


def manager_step(view: ManagerView, known: KnownActivities) -> ManagerStep:
    """Return the next step of a host's workflow: its lease first, then environments of other groups."""
    if not view.exists:
        return Finish()
    lease = view.lease
    if lease is not None and lease.state is LeaseState.ENDED:
        lease = None
    if known.lease is not None:
        step = _watched(lease, known.lease)
    elif lease is not None:
        step = _unwatched(view, lease, known.lease_result)
    else:
        return _cleaning(view, known) or _without_lease(view)
    offered = lease is not None and lease.state is LeaseState.OFFERED
    if isinstance(step, Wait) or (offered and isinstance(step, StartHost)):
        # A host makes room before it prepares for the next group (protocol P9).
        return _cleaning(view, known, otherwise=step) or step
    return step


def _watched(lease: LeaseView | None, running: RunningActivity) -> ManagerStep:
    """Wait for the activity: the agent sees the ending at its renewal, the server notices a dead host."""
    over = lease is None or lease.epoch != running.epoch
    if lease is not None and not over and _lost(lease):
        return Release(lease.epoch, ReleaseReason.LOST)
    ending = lease is not None and lease.state is LeaseState.ENDING
    if (over or (ending and not running.to_the_end)) and running.check_requested_seconds is None:
        return RequestLeaseCheck()
    if over:
        left = BACKSTOP_SECONDS - (running.check_requested_seconds or 0.0)
        return Wait("the host to end a lease that is over", left) if left > 0 else Abandon()
    turn = None if lease is None else lease.turn
    if lease is None or turn is None or running.activity is not HostActivity.RUN:
        return Wait(f"{running.activity} on the host")
    if turn.in_seconds <= 0:
        return DecideLease(lease.epoch, turn.what)
    return Wait(turn.why, turn.in_seconds)


def _unwatched(view: ManagerView, lease: LeaseView, last: LastActivityResult | None) -> ManagerStep:
    result = last if last is not None and last.epoch == lease.epoch else None
    if _lost(lease):
        return Release(lease.epoch, ReleaseReason.LOST)
    if result is not None and result.setup_failed:
        return Release(lease.epoch, ReleaseReason.SETUP_FAILED)
    match lease.state:
        case LeaseState.OFFERED:
            return _offered(lease, result)
        case LeaseState.ACTIVE:
            return _active(view, lease, result)
        case LeaseState.ENDING:
            return _ending(view, lease, result)
        case LeaseState.ENDED:
            return Wait("the next lease")
        case never:
            assert_never(never)


def _offered(lease: LeaseView, result: LastActivityResult | None) -> ManagerStep:
    if _terminal(lease):
        return Release(lease.epoch, ReleaseReason.GROUP_ENDED)
    if result is not None and result.trouble in (
        LeaseEnd.UNREACHABLE,
        LeaseEnd.SILENT,
        LeaseEnd.STOPPING,
    ):
        return Release(lease.epoch, ReleaseReason.UNREACHABLE)
    return _start(lease, HostActivity.PREPARE, result)


def _active(view: ManagerView, lease: LeaseView, result: LastActivityResult | None) -> ManagerStep:
    if (
        result is not None
        and result.activity is HostActivity.PREPARE
        and result.trouble is LeaseEnd.FAILED
    ):
        return Release(lease.epoch, ReleaseReason.SETUP_LOST)
    if (wait := _wait_for_contact(view, lease, result)) is not None:
        return wait
    ready = any(
        env.task_group_id == lease.task_group_id and env.state is EnvironmentState.READY
        for env in view.environments
    )
    return _start(lease, HostActivity.RUN if ready else HostActivity.PREPARE, result)


def _ending(view: ManagerView, lease: LeaseView, result: LastActivityResult | None) -> ManagerStep:
    if result is not None and result.activity is HostActivity.RUN and result.trouble is None:
        reason = ReleaseReason.GROUP_ENDED if _terminal(lease) else ReleaseReason.MOVED
        return Release(lease.epoch, reason)
    # Only the host knows whether a task still runs: attach; the activity returns when none does.
    return _wait_for_contact(view, lease, result) or _start(lease, HostActivity.RUN, result)


def _wait_for_contact(
    view: ManagerView, lease: LeaseView, result: LastActivityResult | None
) -> Wait | None:
    """Wait for contact or the liveness clock: a failed activity is no proof of a loss (protocol P4)."""
    if result is None or result.trouble is None:
        return None
    if view.online and result.trouble is not LeaseEnd.STOPPING:
        return None
    return Wait(
        f"contact with the host, whose last activity ended as {result.trouble}",
        lease.alive_in_seconds,
        look_after=LOST_CHECK_SECONDS,
    )


def _start(
    lease: LeaseView, activity: HostActivity, result: LastActivityResult | None
) -> StartHost | Wait:
    if result is not None and result.activity is activity and result.hold_seconds > 0:
        return Wait(f"the backoff of {activity}", result.hold_seconds)
    return StartHost(activity, lease.task_group_id, lease.epoch)


def _cleaning(
    view: ManagerView, known: KnownActivities, otherwise: ManagerStep | None = None
) -> ManagerStep | None:
    """Return the step that an environment to clean needs now. Owed ones are cleaned at the next hello."""
    if known.cleaning is not None:
        return otherwise if isinstance(otherwise, Wait) else Wait("the teardown hook on the host")
    dirty = _dirty(view)
    if dirty is None or not view.online:
        return None
    result = known.cleaning_result
    if result is not None and result.hold_seconds > 0:
        if isinstance(otherwise, StartHost):
            return None
        left = otherwise.until_look if isinstance(otherwise, Wait) else None
        return Wait(
            "the backoff of the teardown",
            result.hold_seconds if left is None else min(left, result.hold_seconds),
        )
    return StartHost(HostActivity.CLEAN, dirty.task_group_id, None)


def _dirty(view: ManagerView) -> EnvironmentView | None:
    return next(
        (e for e in view.environments if e.cleanable and e.state is not EnvironmentState.OWED), None
    )


def _without_lease(view: ManagerView) -> ManagerStep:
    if view.online:
        return Wait("idle")
    if view.lost_in_seconds is None:
        return Finish()
    if view.lost_in_seconds <= 0:
        return Release(None, ReleaseReason.LOST)
    return Wait("the host, which is silent", view.lost_in_seconds)


def _lost(lease: LeaseView) -> bool:
    return lease.alive_in_seconds is not None and lease.alive_in_seconds <= 0


def _terminal(lease: LeaseView) -> bool:
    return lease.group_state in (TaskGroupState.COMPLETE, TaskGroupState.CANCELLED)
