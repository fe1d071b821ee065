"""What keeps hosts from a task group, as one value: it differs where the explanation would.

It has no times, and of tasks only whether some can be claimed, so that it changes seldom.
"""

from collections.abc import Iterator
from itertools import islice

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.facts import Lease, Progress
from mitosis.scheduling.host_sets import NONE, Hosts, ordinals
from mitosis.scheduling.predicates import conditions_for
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState

HOLDERS_COMPARED = 20
"""Of so many busy hosts the holder makes a difference: an explanation names no more."""

Situation = tuple[object, ...]


def situation(round_: Round, group: GroupState) -> Situation:
    """Return the situation of a task group."""
    leases = [round_.snapshot.leases[number] for number in sorted(group.leases)]
    live = [lease for lease in leases if lease.is_live]
    if not group.work.unfinished:
        return ("idle",)
    if any(_works(lease) for lease in live):
        return ("works",)
    if live:
        return ("begins", *((lease.host, lease.state) for lease in live))
    return ("waits", bool(leases), *_failing(round_, group))


def _works(lease: Lease) -> bool:
    return lease.state is LeaseState.ACTIVE and lease.progress is not Progress.STARTING


def _failing(round_: Round, group: GroupState) -> Iterator[object]:
    """Yield each condition with the hosts that it keeps away, and who holds busy ones."""
    known, busy = round_.snapshot.sets.get("known"), NONE
    for predicate, passing in conditions_for(round_.moment, group):
        failing = known & ~passing
        if failing:
            yield predicate.code, failing
        if predicate.code == "busy":
            busy = failing
    yield known
    yield tuple(_holders(round_, busy))


def _holders(round_: Round, busy: Hosts) -> Iterator[object]:
    for ordinal in islice(ordinals(busy), HOLDERS_COMPARED):
        for lease in round_.snapshot.leases_on(ordinal):
            holder = round_.snapshot.group_of(lease).fact
            yield holder.number, holder.priority, lease.is_live, lease.renewed
