"""Changes of a task group: which ones count, and the events between two snapshots. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime

from mitosis.contracts.following import GroupEvent, LeaseChange, StateChange
from mitosis.contracts.http import HookRunInfo, LeaseInfo, TaskGroupInfo
from mitosis.contracts.lifecycle import TASK_GROUP
from mitosis.contracts.queries import Until

_BY_CLOCK = {"tasks_per_second", "estimated_completion_at", "waiting_for", "leases"}
"""Fields that change with the clock; of leases only epoch and state count."""


def has_changed(before: TaskGroupInfo, now: TaskGroupInfo) -> bool:
    """Return whether followers need the snapshot ``now`` after ``before``.

    Fields that only depend on the clock do not count.
    """
    return _lease_states(before) != _lease_states(now) or before.model_dump(
        exclude=_BY_CLOCK
    ) != now.model_dump(exclude=_BY_CLOCK)


def is_reached(until: Until, first: TaskGroupInfo, now: TaskGroupInfo) -> bool:
    """Return whether a long poll that began with ``first`` ends with ``now``."""
    if now.settled:
        return True
    match until:
        case "changed":
            return has_changed(first, now)
        case "complete":
            return now.state in TASK_GROUP.terminal
        case "settled":
            return False


def events_between(
    before: TaskGroupInfo | None, now: TaskGroupInfo, cursor: int, *, stale: bool = False
) -> Iterator[GroupEvent]:
    """Yield the events between two snapshots of a group, then the new snapshot; for the first one, all.

    ``stale``: the last snapshot is old enough to send another in any case.
    """
    at = datetime.now(UTC)
    if before is None or (before.state, before.settled) != (now.state, now.settled):
        change = StateChange(
            before=None if before is None else before.state,
            state=now.state,
            settled=now.settled,
            result=now.result,
            reason=now.reason,
        )
        yield GroupEvent(kind="state", cursor=cursor, at=at, state=change)
    for lease_change in _lease_changes(before.leases if before else [], now.leases):
        yield GroupEvent(kind="lease", cursor=cursor, at=at, lease=lease_change)
    known = {_hook_key(run): run.state for run in before.hook_runs} if before else {}
    for run in now.hook_runs:
        if known.get(_hook_key(run)) != run.state:
            yield GroupEvent(kind="hook", cursor=cursor, at=at, hook=run)
    if before is None or stale or has_changed(before, now):
        yield GroupEvent(kind="group", cursor=cursor, at=at, group=now)


def _lease_states(group: TaskGroupInfo) -> list[tuple[int, str]]:
    return [(lease.epoch, lease.state) for lease in group.leases]


def _lease_changes(before: list[LeaseInfo], now: list[LeaseInfo]) -> Iterator[LeaseChange]:
    known = {lease.epoch: lease for lease in before}
    for lease in now:
        old = known.pop(lease.epoch, None)
        if old is None or old.state != lease.state:
            yield _lease_change(lease, old.state if old else None, lease.state)
    for lease in known.values():
        yield _lease_change(lease, lease.state, "ended")


def _lease_change(lease: LeaseInfo, before: str | None, state: str) -> LeaseChange:
    return LeaseChange(manager_name=lease.manager_name, before=before, state=state, lease=lease)


def _hook_key(run: HookRunInfo) -> tuple[str, str, datetime]:
    return run.kind, run.manager_name, run.started_at
