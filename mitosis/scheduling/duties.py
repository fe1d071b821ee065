"""Ends and renewals of leases that no waiting task group causes."""

from collections.abc import Iterator

from mitosis.scheduling.actions import EndLease, EndReason, Renew
from mitosis.scheduling.costs import affinity_seconds
from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.host_sets import ordinals
from mitosis.scheduling.round import Round


def end_leases_that_may_not_stay(round_: Round) -> None:
    """End leases on hosts that drain or left the task group, and those above ``max_managers``."""
    for rule in (_draining, _misplaced, _too_many):
        for lease, reason in rule(round_):
            if round_.is_over:
                return
            if lease.number not in round_.ended:
                at = _ask_back_at(round_, reason)
                round_.end(EndLease(lease.number, lease.host, reason, at))


def renew_leases(round_: Round) -> None:
    """Renew the leases whose affinity is over and whose host was not taken; end those without work (C-02)."""
    for _, (number,) in round_.snapshot.times.affinity.due(round_.now):
        if round_.is_over:
            return
        if number in round_.ended:
            continue
        lease = round_.snapshot.leases[number]
        group = round_.snapshot.group_of(lease)
        if group.work.unfinished > 0 or group.work.ready > 0:
            until = round_.now + affinity_seconds(group.fact, group.work, round_.policy)
            round_.actions.append(Renew(number, until))
        else:
            round_.end(EndLease(number, lease.host, EndReason.NO_WORK, round_.now))


def _draining(round_: Round) -> Iterator[tuple[Lease, EndReason]]:
    sets = round_.snapshot.sets
    for ordinal in ordinals(sets.get("draining") & sets.get("live")):
        for lease in round_.snapshot.leases_on(ordinal):
            if lease.is_live:
                yield lease, EndReason.DRAINING


def _misplaced(round_: Round) -> Iterator[tuple[Lease, EndReason]]:
    for number in sorted(round_.snapshot.misplaced):
        yield round_.snapshot.leases[number], EndReason.NOT_MEMBER


def _too_many(round_: Round) -> Iterator[tuple[Lease, EndReason]]:
    """Yield the leases above the limit, last come first; those ended for another reason count as gone."""
    snapshot = round_.snapshot
    for number in sorted(snapshot.too_many):
        group = snapshot.groups[number]
        leases = [snapshot.leases[of] for of in group.leases if of not in round_.ended]
        live = sorted((lease for lease in leases if lease.is_live), key=_last_come_first)
        for lease in live[: len(live) - (group.fact.max_managers or 0)]:
            yield lease, EndReason.MAX_MANAGERS


def _last_come_first(lease: Lease) -> tuple[float, int]:
    return -lease.taken_at, -lease.number


def _ask_back_at(round_: Round, reason: EndReason) -> float:
    """Return when tasks that have not started are asked back: other hosts can begin them at once."""
    return FOREVER if reason is EndReason.DRAINING else round_.now
