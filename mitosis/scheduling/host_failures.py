"""Whether a failure keeps a host away from a task group, and the text about it. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from shlex import quote
from uuid import UUID

from mitosis.contracts.failing_host import FailingHost
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.http import WAITING_SETUP_FAILED
from mitosis.contracts.liveness import HOST_TAKES_WITHIN
from mitosis.scheduling.wording import exact

NAMES_AT_ONCE = 20
"""Hosts that are named in a row for the same reason."""
MOST_CHARACTERS = 4000
FAIL_ELSEWHERE = 2
"""So many more tasks fail on other hosts than succeed there: the tasks are to blame."""
NEARLY_ALL = 0.9
"""From this part of the failures of a task group on, they come from one host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFailure:
    """What a host failed at for one task group, since its agent started and the hook changed."""

    group: int
    """Number of the task group."""
    group_name: str
    kind: HostFailureKind
    failures: int
    """In a row."""
    reason: str
    tried_in_seconds: float | None
    """Until the host is tried again; None if no time ends it."""

    @property
    def is_due(self) -> bool:
        """Whether the pause is over."""
        return self.tried_in_seconds is not None and self.tried_in_seconds <= 0

    @property
    def blocks(self) -> bool:
        """Whether the host is not offered to the group because of it."""
        if self.kind in (HostFailureKind.SETUP_FAILED, HostFailureKind.SUSPECTED):
            return True
        if self.kind is HostFailureKind.TASKS_FAILED:
            return False
        return self.tried_in_seconds is not None and self.tried_in_seconds > 0

    def sentence(self, host_name: str) -> str:
        """Return what happened, when the host is tried again and how to make that sooner.

        It is printed after the name of the host.
        """
        return _SENTENCES[self.kind](self, host_name)


@dataclass(frozen=True, slots=True)
class FailedHost:
    """A host on which the setup of a task group has failed."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class EndedThere:
    """How tasks of one task group ended on one host; without a name: failures that no host is blamed for."""

    manager_id: UUID | None
    manager_name: str | None
    failed: int
    succeeded: int


def failing_host(
    ended: Sequence[EndedThere], quarantine_after: int, *, cut: bool = False
) -> FailingHost | None:
    """Return the host that nearly all failures of a task group come from, if no task succeeded there.

    None, too, where tasks fail on other hosts, by the rule that excuses a host (C-33).

    ``cut``: more tasks have failed than are counted.
    """
    enough = max(quarantine_after, NEARLY_ALL * sum(one.failed for one in ended))
    for one in ended:
        if one.manager_id is None or one.manager_name is None:
            continue
        others = [other for other in ended if other is not one]
        elsewhere = sum(other.failed - other.succeeded for other in others if other.manager_id)
        if one.failed >= enough and not one.succeeded and elsewhere < FAIL_ELSEWHERE:
            line = _failing_line(one, others, cut=cut)
            return FailingHost(
                manager_id=one.manager_id,
                manager_name=one.manager_name,
                tasks_failed=one.failed,
                line=line,
            )
    return None


def _failing_line(host: EndedThere, others: Sequence[EndedThere], *, cut: bool) -> str:
    line = f"may be broken: {'at least ' if cut else ''}{host.failed} tasks failed there, and none succeeded"
    if succeeded := sum(one.succeeded for one in others):
        return f"{line}; {succeeded} succeeded elsewhere"
    if any(one.failed for one in others):
        return line
    return f"{line}; no other host ran any: the tasks are to blame if they fail on another one too"


def setup_failed_on(hosts: Sequence[FailedHost]) -> str:
    """Name every host with its reason, as in ``setup failed on a, b: exit code 3; on c: no message``.

    From some thousand characters on, say how many hosts are left out.
    """
    by_reason: dict[str, list[str]] = {}
    for host in hosts:
        by_reason.setdefault(host.reason, []).append(host.name)
    parts: list[str] = []
    left = len(hosts)
    for reason, names in by_reason.items():
        for first in range(0, len(names), NAMES_AT_ONCE):
            some = names[first : first + NAMES_AT_ONCE]
            if sum(len(part) for part in parts) > MOST_CHARACTERS:
                return f"{WAITING_SETUP_FAILED}{'; on '.join(parts)}; and on {left} more hosts"
            parts.append(f"{', '.join(some)}: {reason}")
            left -= len(some)
    return f"{WAITING_SETUP_FAILED}{'; on '.join(parts)}"


def after_failed_setups(
    hosts: Sequence[FailedHost], group_name: str, closes_in_seconds: float | None, *, ends: bool
) -> str:
    """Name every host with its reason, what the task group waits for and until when, and the way out.

    ``ends``: it does not wait.
    """
    line = setup_failed_on(hosts)
    if ends:
        return f"{line}; it ends because of that"
    until = ""
    if closes_in_seconds is not None:
        until = f", until it closes in {exact(max(0.0, closes_in_seconds), ceil)}"
    retry = command("retry-setup", hosts[0].name, group_name)
    return f"{line}; it waits for another host{until}; repair one, then: {retry}"


def command(verb: str, host_name: str, group_name: str) -> str:
    """Return the command that lifts a failure."""
    return f"mitosis manager {verb} {quote(host_name)} --task-group {quote(group_name)}"


def _setup_failed(failure: HostFailure, host_name: str) -> str:
    retry = command("retry-setup", host_name, failure.group_name)
    return (
        f"setup failed: {failure.reason}; it is not repeated there before the agent restarts, the hook"
        f" changes, or: {retry}"
    )


def _unreachable(failure: HostFailure, _: str) -> str:
    offers = "the last offer" if failure.failures == 1 else f"the last {failure.failures} offers"
    return (
        f"is unreachable: it did not take {offers} within {HOST_TAKES_WITHIN.total_seconds():.0f} s"
        f" although its agent calls the API; check that it reaches Temporal; {_again(failure)}"
    )


def _again(failure: HostFailure) -> str:
    if failure.is_due or failure.tried_in_seconds is None:
        return "tried again now"
    return f"tried again in {exact(failure.tried_in_seconds, ceil)}"


def _times(failure: HostFailure) -> str:
    return "" if failure.failures == 1 else f" {failure.failures} times in a row"


def _quarantined(failure: HostFailure, host_name: str) -> str:
    release = command("release-quarantine", host_name, failure.group_name)
    return (
        f"is quarantined: {failure.reason}; {_again(failure)} with one task; a restart of its agent"
        f" ends it, and: {release}"
    )


_SENTENCES: Mapping[HostFailureKind, Callable[[HostFailure, str], str]] = {
    HostFailureKind.SETUP_FAILED: _setup_failed,
    HostFailureKind.UNREACHABLE: _unreachable,
    HostFailureKind.WORKERS_NOT_STARTED: lambda failure, _: (
        f"could not start workers{_times(failure)}: {failure.reason}; {_again(failure)}"
    ),
    HostFailureKind.NO_PROGRESS: lambda failure, _: (
        f"made no progress{_times(failure)}: {failure.reason}; {_again(failure)}"
    ),
    HostFailureKind.TASKS_FAILED: lambda failure, _: (
        f"may be broken: the last {failure.failures} tasks that ended there failed; {failure.reason}"
    ),
    HostFailureKind.SUSPECTED: lambda failure, _: (
        f"is suspected: {failure.reason}; it gets no more before some of them were tried on other hosts"
    ),
    HostFailureKind.QUARANTINED: _quarantined,
}
