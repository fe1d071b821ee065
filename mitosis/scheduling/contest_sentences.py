"""The sentences about leases that a waiting task group cannot take, and about hosts that another one took."""

from collections.abc import Callable, Mapping
from math import ceil, floor

from mitosis.scheduling.actions import EndLease, Offer, Rank
from mitosis.scheduling.claims import (
    Objection,
    ObjectionKind,
    compared_shares,
    threshold_seconds,
)
from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState, HostState
from mitosis.scheduling.wording import compared, exact


def _holder(round_: Round, lease: Lease) -> str:
    return round_.snapshot.group_of(lease).fact.name


def _ending(round_: Round, _: GroupState, lease: Lease, __: Objection) -> str:
    winner = round_.snapshot.groups.get(lease.for_group or 0)
    for_whom = f" for {winner.fact.name}" if winner is not None else ""
    # Only contested ends have a time.
    since = f", since {exact(round_.now - lease.ending_since, floor)}" if lease.ending_since else ""
    return f"finishes its tasks of {_holder(round_, lease)}{for_whom}{since}"


def _starting(round_: Round, _: GroupState, lease: Lease, __: Objection) -> str:
    since = exact(max(0.0, round_.now - lease.taken_at), floor)
    return f"is being set up for {_holder(round_, lease)} since {since}"


def _moves(round_: Round, _: GroupState, lease: Lease, found: Objection) -> str:
    count = len(round_.moment.moves(round_.snapshot.hosts[lease.host]))
    allowed = round_.policy.moves_per_hour
    again = exact(found.until - round_.now, ceil)
    return f"was moved {count} times within an hour of {allowed} allowed; again in {again}"


def _idle(round_: Round, group: GroupState, lease: Lease, _: Objection) -> str:
    since = round_.now if lease.idle_since is None else lease.idle_since
    idle_for, threshold = compared(round_.now - since, threshold_seconds(round_, group, lease))
    return f"is idle under {_holder(round_, lease)} for {idle_for} of {threshold}"


def _affinity(round_: Round, group: GroupState, lease: Lease, found: Objection) -> str:
    left = exact(found.until - round_.now, ceil)
    return f"stays with {_holder(round_, lease)} for {left}; then {_compared(round_, group, lease)}"


def _compared(round_: Round, group: GroupState, lease: Lease) -> str:
    """Compare the waiting task group with the one that holds the lease."""
    holder = round_.snapshot.group_of(lease)
    mine, theirs = group.fact.priority, holder.fact.priority
    if mine != theirs or group.fact.number in round_.moment.starved:
        return f"priority {mine} is {'above' if mine > theirs else 'not above'} {theirs}"
    own, other = compared_shares(round_, group, holder)
    same = group.fact.user_group == holder.fact.user_group
    whose = "the task group" if same else "its user group"
    gap = round_.policy.share_gap
    return (
        f"with priority {mine} as well, {whose} has {own} leases of {other};"
        f" it goes first with {gap} fewer, or none"
    )


OBJECTIONS: Mapping[ObjectionKind, Callable[[Round, GroupState, Lease, Objection], str]] = {
    ObjectionKind.OWN: lambda *_: "serves the task group",
    ObjectionKind.ENDING: _ending,
    ObjectionKind.STARTING: _starting,
    ObjectionKind.MOVES: _moves,
    ObjectionKind.IDLE: _idle,
    ObjectionKind.AFFINITY: _affinity,
    ObjectionKind.RANK: lambda round_, group, lease, _: (
        f"works for {_holder(round_, lease)}, and {_compared(round_, group, lease)}"
    ),
}
"""What protects a lease, with the values compared. Printed after the name of the host."""


def given_to(round_: Round, group: GroupState, winner: Offer) -> str:
    """Say to which task group a free host was given, and with which rank."""
    first = round_.snapshot.groups[winner.group]
    if winner.freed:
        return f"was freed for {first.fact.name}"
    return (
        f"is offered to {first.fact.name}, which {_goes_first(round_, group, first, winner.rank)}"
    )


def taken_for(round_: Round, group: GroupState, end: EndLease) -> str:
    """Say for which task group this decision ends a lease, and with which rank; it names one."""
    first = round_.snapshot.groups[end.for_group or 0]
    line = (
        f"is taken from {_holder(round_, round_.snapshot.leases[end.lease])} for {first.fact.name}"
    )
    if end.rank is None:
        return line
    return f"{line}, which {_goes_first(round_, group, first, end.rank)}"


def _goes_first(round_: Round, group: GroupState, winner: GroupState, rank: Rank) -> str:
    """Compare the task group that got a host, with its rank then, with another one."""
    first, mine = winner.fact, round_.rank(group)
    line = "goes first: "
    if rank.order == -FOREVER:
        starved = exact(round_.policy.starve_after_seconds or 0.0)
        return f"{line}it had no host for {starved}"
    if rank.order != mine.order:
        return f"{line}priority {first.priority} is above {group.fact.priority}"
    # In one user group the shares are equal: those of the winner were counted before it took the host.
    if first.user_group != group.fact.user_group and rank.share != mine.share:
        return f"{line}its user group has {rank.share} leases, this one's {mine.share}"
    if rank.leases != mine.leases:
        return f"{line}it has {rank.leases} leases, this one {mine.leases}"
    elder = exact(group.fact.created_at - first.created_at)
    return f"{line}all else is equal, and it is {elder} older"


def wait(kind: ObjectionKind, host: HostState) -> str:
    """Say what a wait is for."""
    match kind:
        case ObjectionKind.MOVES:
            return f"{host.fact.name} can be moved again then"
        case ObjectionKind.IDLE:
            return f"{host.fact.name} will have been idle for long enough"
        case _:
            return f"the affinity of the lease on {host.fact.name} is over then"
