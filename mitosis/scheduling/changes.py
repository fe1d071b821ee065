"""Changes after which a host would be offered to a task group: their price, their sentence, their effect.

``apply_change`` does to a snapshot what the change does to the world, so that a decision can confirm it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.facts import Host
from mitosis.scheduling.policy import MINUTE
from mitosis.scheduling.snapshot import Snapshot


class ChangeKind(StrEnum):
    """What is changed."""

    WAIT = "wait"
    SUBMIT = "submit"
    MAX_MANAGERS = "max_managers"
    PRIORITY = "priority"
    ADD_HOST = "add_host"
    RETAG = "retag"
    GRANT_ROLE = "grant_role"
    PLAN = "plan"
    CLEANUP = "cleanup"
    END_DRAIN = "end_drain"
    RETRY_SETUP = "retry_setup"
    RELEASE_QUARANTINE = "release_quarantine"
    CONTACT = "contact"


PRICES: Mapping[ChangeKind, float] = {
    ChangeKind.WAIT: 1.0,
    ChangeKind.CLEANUP: 1.0,
    ChangeKind.SUBMIT: 1.5,
    ChangeKind.MAX_MANAGERS: 1.5,
    ChangeKind.PRIORITY: 2.0,
    ChangeKind.RETAG: 2.0,
    ChangeKind.ADD_HOST: 2.5,
    ChangeKind.GRANT_ROLE: 3.0,
    ChangeKind.END_DRAIN: 3.0,
    ChangeKind.RETRY_SETUP: 3.5,
    ChangeKind.RELEASE_QUARANTINE: 4.0,
    ChangeKind.CONTACT: 5.0,
    ChangeKind.PLAN: 6.0,
}
"""The smallest change is the one with the least sum. What the owner of the task group can do alone costs
least, then what needs the owner of a host, then repairs."""
WAIT_PRICE_MINUTES = 30.0
"""Waiting costs one more for each so many minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change."""

    kind: ChangeKind
    line: str
    """For people: ``end the drain of h2``."""
    group: int
    host: int | None = None
    """None: it is about the task group alone."""
    value: float = 0.0
    """WAIT: the time until which; SUBMIT, MAX_MANAGERS and PRIORITY: the number to have."""
    wait_seconds: float = 0.0
    """WAIT: how long."""
    size: float = 0.0
    """How much is changed: tags, tasks, steps of priority. It decides between changes of one price."""

    @property
    def price(self) -> float:
        """Compare it with other changes."""
        return PRICES[self.kind] + self.wait_seconds / MINUTE / WAIT_PRICE_MINUTES


def apply_change(snapshot: Snapshot, change: Change, now: float) -> float:
    """Put the facts that hold after a change; return the time, which is later after a wait."""
    if change.kind is ChangeKind.WAIT:
        _wait(snapshot, change)
        return max(now, change.value)
    if change.kind is ChangeKind.SUBMIT:
        _submit(snapshot, change)
    elif change.kind in _HOST_EFFECTS and change.host is not None:
        host = snapshot.hosts[change.host].fact
        snapshot.put_host(_HOST_EFFECTS[change.kind](snapshot, change, host))
    if change.kind in _GROUP_EFFECTS:
        _GROUP_EFFECTS[change.kind](snapshot, change)
    return now


def _wait(snapshot: Snapshot, change: Change) -> None:
    """Let a delayed attempt become ready that is due by then."""
    work = snapshot.groups[change.group].work
    if work.delayed_until is not None and work.delayed_until <= change.value:
        ready = max(work.ready, 1)
        snapshot.put_work(change.group, replace(work, ready=ready, delayed_until=None))


def _submit(snapshot: Snapshot, change: Change) -> None:
    work = snapshot.groups[change.group].work
    ready = int(change.value)
    unfinished = work.unfinished + ready - work.ready
    snapshot.put_work(change.group, replace(work, ready=ready, unfinished=unfinished))


def _set_max_managers(snapshot: Snapshot, change: Change) -> None:
    group = snapshot.groups[change.group].fact
    snapshot.put_group(replace(group, max_managers=int(change.value)))


def _set_priority(snapshot: Snapshot, change: Change) -> None:
    group = snapshot.groups[change.group].fact
    snapshot.put_group(replace(group, priority=int(change.value)))


def _add_member(snapshot: Snapshot, change: Change) -> None:
    assert change.host is not None  # noqa: S101 - of one host
    group = snapshot.groups[change.group].fact
    bit = 1 << snapshot.ordinal(change.host)
    snapshot.put_group(replace(group, members=group.members | bit, removed=group.removed & ~bit))


def _fit_plan(snapshot: Snapshot, change: Change) -> None:
    assert change.host is not None  # noqa: S101 - of one host
    group = snapshot.groups[change.group].fact
    capacity = snapshot.hosts[change.host].fact.capacity
    snapshot.put_group(replace(group, demand=capacity.least(group.demand), binding=None))


def _retagged(snapshot: Snapshot, change: Change, host: Host) -> Host:
    return replace(host, tags=host.tags | snapshot.groups[change.group].fact.tags)


def _granted(snapshot: Snapshot, change: Change, host: Host) -> Host:
    return replace(host, serves=host.serves | {snapshot.groups[change.group].fact.user_group})


def _lifted(*kinds: HostFailureKind) -> Callable[[Snapshot, Change, Host], Host]:
    """Return the effect of a verb that lifts failures of these kinds for one task group."""

    def effect(_: Snapshot, change: Change, host: Host) -> Host:
        kept = (one for one in host.failures if one.kind not in kinds or one.group != change.group)
        return replace(host, failures=tuple(kept))

    return effect


_HOST_EFFECTS: Mapping[ChangeKind, Callable[[Snapshot, Change, Host], Host]] = {
    ChangeKind.RETAG: _retagged,
    ChangeKind.GRANT_ROLE: _granted,
    ChangeKind.RETRY_SETUP: _lifted(HostFailureKind.SETUP_FAILED),
    ChangeKind.RELEASE_QUARANTINE: _lifted(
        HostFailureKind.QUARANTINED, HostFailureKind.SUSPECTED, HostFailureKind.TASKS_FAILED
    ),
    ChangeKind.CLEANUP: lambda _, __, host: replace(host, unclean=frozenset()),
    ChangeKind.END_DRAIN: lambda _, __, host: replace(host, draining=False),
    ChangeKind.CONTACT: lambda _, __, host: replace(host, in_contact=True),
}
_GROUP_EFFECTS: Mapping[ChangeKind, Callable[[Snapshot, Change], None]] = {
    ChangeKind.MAX_MANAGERS: _set_max_managers,
    ChangeKind.PRIORITY: _set_priority,
    ChangeKind.ADD_HOST: _add_member,
    ChangeKind.RETAG: _add_member,
    ChangeKind.PLAN: _fit_plan,
}
