"""Explains why a task group has no host: the first condition that rules out the last of its hosts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling import sentences
from mitosis.scheduling.binding import binding_mismatch
from mitosis.scheduling.host_failures import (
    FailedHost,
    HostFailure,
    after_failed_setups,
    setup_failed_on,
)
from mitosis.scheduling.predicates import Scope, conditions_for
from mitosis.scheduling.sentences import (
    holders_compared,
    lacking,
    missing_tags,
    no_task_is_ready,
    removed,
    tags,
    would_be_matched,
)
from mitosis.scheduling.wording import names, span
from mitosis.store.leases.waiting import Waiting, WaitingHost


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for the state of a group, a task or a host."""

    code: str
    """Stable, for programs."""
    line: str
    waits: bool = True
    """False: it runs, or it has ended."""


def no_host_reason(facts: Waiting) -> Reason | None:
    """Return the first condition that rules out the last remaining host; None: a host is left.

    Where it waits for such a host because the setup has failed on all others, these are named too.
    """
    left, failed_too = facts.hosts, ""
    for predicate, passing in conditions_for(facts.moment, facts.group_state):
        if predicate.scope is Scope.GROUP:
            if not passing:
                return NONE_LEFT[predicate.code](left, facts)
            continue
        remaining = facts.among(left, passing)
        if not remaining:
            reason = NONE_LEFT[predicate.code](left, facts)
            return replace(reason, line=f"{reason.line}{failed_too}")
        if predicate.code == HostFailureKind.SETUP_FAILED and len(remaining) < len(left):
            failed_too = f"; {setup_failed_on(_failed_setups(left, facts))}"
        left = remaining
    return None


def last_seen(host: WaitingHost, facts: Waiting) -> str:
    """Return the name of a host, and how long it has been silent."""
    silent = facts.silent_seconds(host)
    return host.name if silent is None else f"{host.name} (last seen {span(silent)} ago)"


def host_names(hosts: Sequence[WaitingHost]) -> str:
    """Return the names of the first hosts, and how many more there are."""
    return names([host.name for host in hosts])


def with_debt(line: str, hosts: Sequence[WaitingHost]) -> str:
    """Add why the teardown of one of these hosts cannot begin."""
    debt = next((host.debt for host in hosts if host.debt), None)
    return f"{line}: {debt}" if debt else line


def _no_work(_: Sequence[WaitingHost], facts: Waiting) -> Reason:
    delayed = facts.group.delayed_seconds
    if delayed is None:
        return Reason("no_work", no_task_is_ready(facts.group.unfinished))
    return Reason("delayed", f"the next attempt is due in {max(delayed, 0.0):.0f} s")


def _no_member(sentence: Callable[..., str]) -> "NoneLeft":
    """Return the reason that names the first host and what would make it a member."""

    def reason(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
        first = facts.host_state(hosts[0])
        line = sentence(facts.moment, facts.group_state, first)
        return Reason("member", f"no host is a member: {first.fact.name} {line}")

    return reason


def _none_named(*_: object) -> Reason:
    return Reason("none_named", "it runs only on hosts that a user names for it, and none is named")


def _no_tags(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
    """Name a host that a refresh would match; else the tags, and those that the closest host lacks."""
    group = facts.group_state
    states = [facts.host_state(host) for host in hosts]
    first = next((host for host in states if would_be_matched(group, host)), None)
    if first is not None:
        line = tags(facts.moment, group, first)
        return Reason("member", f"no host is a member: {first.fact.name} {line}")
    wanted = ", ".join(sorted(group.fact.tags))
    line = f"no host has {group.fact.tag_match} of the tags {wanted}"
    if group.fact.tag_match == "all":
        closest = min(states, key=lambda host: len(missing_tags(group, host)))
        line = f"{line}: {closest.fact.name} lacks {', '.join(missing_tags(group, closest))}"
    return Reason("tags", line)


def _no_host_fits(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
    first, group = hosts[0], facts.group
    mismatch = binding_mismatch(group.workers, group.binding, first.cores or ())
    return Reason("misfit", f"{first.name} cannot serve it: {mismatch}")


def _too_small(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
    demand = facts.group_state.fact.demand
    first = facts.host_state(hosts[0]).fact
    line = f"{host_names(hosts)} {'are' if len(hosts) > 1 else 'is'} too small"
    return Reason("too_small", f"{line}: {first.name}: {lacking(first.capacity, demand)}")


def _failure_of(host: WaitingHost, kind: HostFailureKind, facts: Waiting) -> HostFailure | None:
    number = facts.group.number
    found = (
        failure.at(facts.moment.now)
        for failure in facts.host_state(host).fact.failures
        if failure.kind is kind and failure.name[1] in (None, number)
    )
    return next((failure for failure in found if failure.blocks), None)


def _failed_setups(hosts: Sequence[WaitingHost], facts: Waiting) -> Sequence[FailedHost]:
    """Return those of the hosts on which the setup has failed, with the reasons."""
    kind = HostFailureKind.SETUP_FAILED
    failures = [(host, _failure_of(host, kind, facts)) for host in hosts]
    return [FailedHost(host.name, failure.reason) for host, failure in failures if failure]


def _setup_failed(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
    group, failed = facts.group, _failed_setups(hosts, facts)
    until, ends = group.closes_in_seconds, group.ends_if_setup_fails
    return Reason("setup_failed", after_failed_setups(failed, group.name, until, ends=ends))


def _tried_in(failure: HostFailure | None) -> float:
    return (failure.tried_in_seconds if failure is not None else None) or 0.0


def _all_failed(kind: HostFailureKind) -> "NoneLeft":
    """Return the reason of a group if failures of this kind keep all remaining hosts away."""

    def reason(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
        failures = [(host, _failure_of(host, kind, facts)) for host in hosts]
        first, failure = min(failures, key=lambda pair: _tried_in(pair[1]))
        if failure is None:
            return Reason(kind.value, f"{first.name} is tried again now")
        others = [host for host in hosts if host is not first]
        also = f" (also: {host_names(others)})" if others else ""
        return Reason(kind.value, f"{first.name} {failure.sentence(first.name)}{also}")

    return reason


def _no_contact(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
    seen = names([last_seen(host, facts) for host in hosts])
    allowed = span(facts.moment.policy.suspect_after_seconds)
    line = f"no host that may run it is in contact: {seen}; silence of {allowed} is allowed"
    return Reason("no_contact", line)


def _draining(hosts: Sequence[WaitingHost], _: Waiting) -> Reason:
    return Reason("draining", f"every host that may run it is draining: {host_names(hosts)}")


def _busy(hosts: Sequence[WaitingHost], facts: Waiting) -> Reason:
    snapshot = facts.moment.snapshot
    ordinals = [facts.host_state(host).ordinal for host in hosts]
    leases = [lease for ordinal in ordinals for lease in snapshot.leases_on(ordinal)]
    holders = [snapshot.group_of(lease).fact for lease in leases]
    whom = holders_compared(facts.group.priority, holders)
    return Reason("busy", f"{host_names(hosts)} busy with {whom}")


NoneLeft = Callable[[Sequence[WaitingHost], Waiting], Reason]
NONE_LEFT: Mapping[str, NoneLeft] = {
    "ended": lambda *_: Reason("settling", "being settled"),
    "no_work": _no_work,
    "max_managers": lambda _, facts: Reason(
        "max_managers",
        "it has as many hosts as it may have:"
        f" {sentences.held_of_most(facts.moment, facts.group_state)}",
    ),
    "enough": lambda _, facts: Reason(
        "enough",
        "it has as many hosts as it can use:"
        f" {sentences.held_of_useful(facts.moment, facts.group_state)}",
    ),
    "no_role": lambda _, facts: Reason(
        "no_manager",
        f"no host may serve user group {facts.group.user_group_name}; register one there",
    ),
    "removed": _no_member(removed),
    "not_named": _none_named,
    "tags": _no_tags,
    "misfit": _no_host_fits,
    "too_small": _too_small,
    "setup_failed": _setup_failed,
    "no_contact": _no_contact,
    **{
        kind.value: _all_failed(kind)
        for kind in HostFailureKind
        if kind is not HostFailureKind.SETUP_FAILED
    },
    "draining": _draining,
    "busy": _busy,
    "cleanup": lambda hosts, _: Reason(
        "cleanup", with_debt(f"cleanup on {host_names(hosts)}", hosts)
    ),
    "unclean": lambda hosts, _: Reason(
        "unclean", with_debt(f"cleanup after another task group on {host_names(hosts)}", hosts)
    ),
}
"""By the code of a condition: the reason of a group if it holds for none of the remaining hosts."""
