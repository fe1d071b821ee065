"""The scheduling decision once more, without any set kept for it: every host and lease is asked each time.

It has the same order of the line and the same choice among hosts; who may have which host, and when, is asked
of the one list of conditions and of ``claim``. It is for hosts with room for one lease.
"""

from collections.abc import Callable, Iterator, Sequence

from mitosis.scheduling.actions import Action, EndLease, EndReason
from mitosis.scheduling.claims import Claim, claim, move_seconds
from mitosis.scheduling.contestable import Holder, cheapest_first
from mitosis.scheduling.costs import drain_seconds
from mitosis.scheduling.duties import end_leases_that_may_not_stay, renew_leases
from mitosis.scheduling.facts import Lease
from mitosis.scheduling.host_sets import NONE, Hosts, ordinals
from mitosis.scheduling.offers import offer_freed_hosts
from mitosis.scheduling.policy import Order
from mitosis.scheduling.predicates import PREDICATES, Scope
from mitosis.scheduling.round import Round
from mitosis.scheduling.set_names import MANY_DORMANT
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import GroupState, line_key
from tests.support.plain_wake import plain_broken_promises, plain_wake

Rank = tuple[float, int, tuple[float, ...]]


def plainly_decided(snapshot: Snapshot, now: float) -> Sequence[Action]:
    """What ``decide`` should decide."""
    round_ = Round(snapshot, now)
    round_.moment.broken_promises = plain_broken_promises(round_)
    for step in (
        end_leases_that_may_not_stay,
        offer_freed_hosts,
        _offer_free_hosts,
        _take_hosts,
        renew_leases,
    ):
        if not round_.is_over:
            step(round_)
    wake = plain_wake(round_)
    return round_.actions if wake is None else [*round_.actions, wake]


class _Line:
    """Task groups that wait, best first, examined again one by one at each step."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._left = [
            group
            for group in round_.snapshot.groups.values()
            if group.fact.goes_on and round_.moment.missing(group) > 0
        ]
        self._keys = {group.fact.number: self._first_key(group) for group in self._left}

    def __iter__(self) -> Iterator[GroupState]:
        while self._left:
            best = min(self._left, key=self._rank)
            self._left.remove(best)
            yield best

    def again(self, group: GroupState) -> None:
        """Let it stand in the line again, with what it has got."""
        self._keys[group.fact.number] = self._key(group)
        self._left.append(group)

    def _first_key(self, group: GroupState) -> tuple[float, ...]:
        starved = group.fact.number in self._round.moment.starved
        in_line = group.bucket is not None and not starved
        return line_key(group, self._round.policy) if in_line else self._key(group)

    def _key(self, group: GroupState) -> tuple[float, ...]:
        by_share = self._round.policy.order is Order.SHARE
        leases = self._round.leases(group) if by_share else 0
        return leases, group.fact.created_at, group.fact.number

    def _rank(self, group: GroupState) -> Rank:
        round_, fact = self._round, group.fact
        share = round_.share(fact.user_group) if round_.policy.order is Order.SHARE else 0
        return round_.order(group), share, self._keys[fact.number]


def _passing(round_: Round, group: GroupState, *, free: bool) -> Hosts:
    """The hosts that no condition forbids; ``free``: those on the room that leases leave count as well."""
    scopes = {Scope.MEMBERS, Scope.PROFILE, Scope.FAILURES, Scope.HOST}
    if free:
        scopes.add(Scope.FREE)
    found = NONE
    for state in round_.snapshot.hosts.values():
        if not group.fact.members >> state.ordinal & 1:
            continue
        conditions = (one for one in PREDICATES if one.scope in scopes)
        if all(one.holds(round_.moment, group, state) for one in conditions):
            found |= 1 << state.ordinal
    return found


# --- free hosts ------------------------------------------------------------------------------------------


def _offer_free_hosts(round_: Round) -> None:
    usable = {
        group.fact.number: _shared(round_, group) for group in round_.snapshot.groups.values()
    }
    line = _Line(round_)
    waiting = {group.fact.number for group in line._left}
    for group in line:
        if round_.missing(group) <= 0:
            continue
        hosts = _passing(round_, group, free=True) & ~round_.full
        if not hosts:
            continue
        mine = usable[group.fact.number].bit_count()
        choosier = NONE
        for number in waiting:
            if 0 < usable[number].bit_count() < mine:
                choosier |= usable[number]
        round_.offer(group, _best(round_, group, hosts, choosier))
        if round_.missing(group) > 0:
            line.again(group)
        if round_.is_over:
            return


def _shared(round_: Round, group: GroupState) -> Hosts:
    """The free hosts of a task group, failures of its own aside."""
    return group.fact.members & round_.free(group)


def _best(round_: Round, group: GroupState, hosts: Hosts, choosier: Hosts) -> int:
    def rank(ordinal: int) -> tuple[bool, bool, bool, int, int]:
        fact = round_.snapshot.host_at(ordinal).fact
        doubtful = any(failure.name[1] in (None, group.fact.number) for failure in fact.failures)
        is_warm = group.fact.number in fact.warm
        wanted = not is_warm and bool(choosier >> ordinal & 1)
        return doubtful, not is_warm, wanted, min(len(fact.warm), MANY_DORMANT), ordinal

    return min(ordinals(hosts), key=rank)


# --- hosts of others -------------------------------------------------------------------------------------


def _take_hosts(round_: Round) -> None:
    taken: Hosts = NONE
    shares = {of: round_.share(of) for of in _user_groups(round_)}
    line = _Line(round_)
    for group in line:
        if round_.missing(group) <= 0:
            continue
        hosts = _passing(round_, group, free=False) & ~taken
        lease = _cheapest(round_, group, hosts, shares)
        if lease is None:
            continue
        taken |= 1 << round_.snapshot.ordinal(lease.host)
        _end(round_, group, lease)
        if round_.is_over:
            return
        if round_.missing(group) > 0:
            line.again(group)


def _user_groups(round_: Round) -> set[int]:
    return {group.fact.user_group for group in round_.snapshot.groups.values()}


def _claims(round_: Round, group: GroupState, hosts: Hosts) -> dict[EndReason, list[Lease]]:
    found: dict[EndReason, list[Lease]] = {EndReason.IDLE: [], EndReason.AFFINITY: []}
    for ordinal in ordinals(hosts):
        for lease in round_.snapshot.leases_on(ordinal):
            right = claim(round_, group, lease)
            if isinstance(right, Claim):
                found[right.reason].append(lease)
    return found


def _cheapest(
    round_: Round, group: GroupState, hosts: Hosts, shares: dict[int, int]
) -> Lease | None:
    """The lease to end: an idle one before all; then of the weakest holders; then of the least cost."""
    claims = _claims(round_, group, hosts)

    def strength(lease: Lease) -> tuple[int, int, int]:
        fact = round_.snapshot.group_of(lease).fact
        return fact.priority, -shares[fact.user_group], fact.user_group

    if claims[EndReason.IDLE]:
        return _of_least_cost(round_, group, claims[EndReason.IDLE], _teardown)
    busy = claims[EndReason.AFFINITY]
    if not busy:
        return None
    weakest = min(strength(lease) for lease in busy)
    of_weakest = [lease for lease in busy if strength(lease) == weakest]
    return _of_least_cost(round_, group, of_weakest, _teardown_and_drain)


def _teardown(holder: GroupState) -> float:
    return holder.work.teardown_seconds


def _teardown_and_drain(holder: GroupState) -> float:
    return holder.work.teardown_seconds + drain_seconds(holder.work, holder.fact.workers)


def _of_least_cost(
    round_: Round, group: GroupState, leases: Sequence[Lease], cost: Callable[[GroupState], float]
) -> Lease:
    holders: dict[int, Holder] = {}
    by_ordinal: dict[int, Lease] = {}
    for lease in leases:
        holder = round_.snapshot.group_of(lease)
        made = holders.setdefault(lease.group, Holder(holder, cost(holder)))
        ordinal = round_.snapshot.ordinal(lease.host)
        made.due |= 1 << ordinal
        by_ordinal[ordinal] = lease
    in_order = sorted(holders.values(), key=lambda one: (one.cost_seconds, one.group.fact.number))
    every = sum(1 << ordinal for ordinal in by_ordinal)
    cheapest = next(cheapest_first(round_, group, in_order, every))
    return by_ordinal[min(ordinals(cheapest))]


def _end(round_: Round, group: GroupState, lease: Lease) -> None:
    right = claim(round_, group, lease)
    assert isinstance(right, Claim)
    rank = round_.rank(group)
    holder = round_.snapshot.group_of(lease)
    grace = round_.policy.settings_of(holder.fact.leases).preemption_grace
    round_.end(
        EndLease(
            lease=lease.number,
            host=lease.host,
            reason=right.reason,
            ask_back_at=round_.now + (grace if right.reason is EndReason.AFFINITY else 0.0),
            for_group=group.fact.number,
            rank=rank,
            since=right.since,
            threshold_seconds=right.threshold_seconds,
            cost_seconds=move_seconds(round_, group, lease),
        )
    )
    round_.gain(group)
