"""The smallest change after which some host would be given to a task group.

For each host the changes are summed that make all conditions hold; the cheapest sums are tried. A change is
returned only if a decision with its effect leads to a lease.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mitosis.scheduling import contest_sentences
from mitosis.scheduling.actions import Offer, Renew, gains_of
from mitosis.scheduling.changes import Change, ChangeKind, apply_change
from mitosis.scheduling.claims import Objection, ObjectionKind, claim
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.host_sets import Hosts
from mitosis.scheduling.predicates import Condition
from mitosis.scheduling.remedies import priority_above, remedy, wait_until
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState, HostState

TRIED = 6
"""So many of the cheapest changes are tried."""
TRIED_ON_A_HOST = 3
"""The same where the host is given."""
RAISED = 8
"""So often the priority is raised above another task group that took the host."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that lead to a lease together."""

    changes: Sequence[Change]

    @property
    def price(self) -> float:
        """Return the sum of the prices."""
        return sum(change.price for change in self.changes)

    @property
    def line(self) -> str:
        """Return all of them in one line."""
        return ", then ".join(change.line for change in self.changes)


def smallest_change(
    round_: Round, group: GroupState, hosts: Iterable[HostState], conditions: Sequence[Condition]
) -> Changes | None:
    """Return the cheapest changes that lead to a lease, confirmed by decisions."""
    found = [
        Changes(tuple(needed))
        for host in hosts
        if (needed := _needed(round_, group, host, conditions)) is not None
    ]
    found.sort(key=lambda changes: changes.price)
    trials = _Trials(round_, group)
    confirmed = [changes for one in found[:TRIED] if (changes := trials.confirmed(one)) is not None]
    return min(confirmed, key=lambda changes: changes.price, default=None)


def smallest_change_on(
    round_: Round, host: HostState, groups: Iterable[tuple[GroupState, Sequence[Condition]]]
) -> Changes | None:
    """Return the cheapest changes after which the host serves one of these task groups."""
    found = [
        (Changes(tuple(needed)), group)
        for group, conditions in groups
        if (needed := _needed(round_, group, host, conditions)) is not None
    ]
    found.sort(key=lambda pair: pair[0].price)
    confirmed = (
        _Trials(round_, group, host.fact.number).confirmed(needed)
        for needed, group in found[:TRIED_ON_A_HOST]
    )
    return min(filter(None, confirmed), key=lambda changes: changes.price, default=None)


def _needed(
    round_: Round, group: GroupState, host: HostState, conditions: Sequence[Condition]
) -> list[Change] | None:
    """Return the changes that make every condition hold for a host; None if no changes can."""
    changes: list[Change] = []
    for predicate, passing in conditions:
        if passing >> host.ordinal & 1:
            continue
        if predicate.code == "busy":
            made = _freed(round_, group, host)
        else:
            one = remedy(predicate.code, round_.moment, group, host)
            made = None if one is None else [one]
        if made is None:
            return None
        changes += (change for change in made if change not in changes)
    return [_longest_wait(changes), *_without_waits(changes)] if _waits(changes) else changes


def _waits(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.wait_seconds > 0]


def _longest_wait(changes: Sequence[Change]) -> Change:
    return max(_waits(changes), key=lambda change: change.wait_seconds)


def _without_waits(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.wait_seconds <= 0]


def _freed(round_: Round, group: GroupState, host: HostState) -> list[Change] | None:
    """Return the changes after which leases of the host can be ended for the task group."""
    options = []
    for lease in round_.snapshot.leases_on(host.ordinal):
        right = claim(round_, group, lease)
        changes = _against(round_, group, host, right) if isinstance(right, Objection) else []
        if changes is not None:
            options.append((sum(change.price for change in changes), lease.number, changes))
    options.sort(key=lambda option: option[:2])
    # A host that is too small gets another plan first; see `remedies`.
    demand = host.fact.capacity.least(group.fact.demand)
    room, needed = host.free, list[Change]()
    if room.covers(demand):
        return needed
    for _, number, changes in options:
        lease = round_.snapshot.leases[number]
        room = room.plus(round_.snapshot.group_of(lease).fact.demand)
        needed += changes
        if room.covers(demand):
            return needed
    return None


def _against(
    round_: Round, group: GroupState, host: HostState, objection: Objection
) -> list[Change] | None:
    """Return the changes that end what protects a lease."""
    if objection.until < FOREVER:
        why = contest_sentences.wait(objection.kind, host)
        return [wait_until(round_.moment, group, host, objection.until, why)]
    if objection.kind is not ObjectionKind.RANK:
        return None
    leases = round_.snapshot.leases_on(host.ordinal)
    raised = priority_above(group, max(_priority(round_, lease) for lease in leases))
    at = max(lease.affinity_until for lease in leases)
    hostless = not round_.leases(group) and all(lease.renewed for lease in leases)
    if at <= round_.now or hostless:
        return [raised]
    if at == FOREVER:
        return None
    why = contest_sentences.wait(ObjectionKind.AFFINITY, host)
    return [raised, wait_until(round_.moment, group, host, at, why)]


def _priority(round_: Round, lease: Lease) -> int:
    return round_.snapshot.group_of(lease).fact.priority


class _Trials:
    """Tries changes on one copy of the snapshot, which is put back after each."""

    def __init__(self, round_: Round, group: GroupState, host: int | None = None) -> None:
        """``host``: only a lease on this one counts."""
        self._now = round_.now
        self._copy = round_.snapshot.copy()
        self._group = group
        self._number = group.fact.number
        self._host = host

    def confirmed(self, needed: Changes) -> Changes | None:
        """Return the changes if they lead to a lease, with a higher priority where others go first."""
        changes = needed
        for _ in range(RAISED):
            with self._decided_after(changes) as tried:
                gains = gains_of(tried.actions, self._number)
                if any(self._host in (None, gain.host) for gain in gains):
                    return changes
                mine = tried.snapshot.groups[self._number].fact
                above = _highest_winner(tried, mine.members)
            if above is None or above < mine.priority:
                return None
            others = [one for one in changes.changes if one.kind is not ChangeKind.PRIORITY]
            changes = Changes((priority_above(self._group, above), *others))
        return None

    @contextmanager
    def _decided_after(self, changes: Changes) -> Iterator[Round]:
        now = self._now
        hosts = {change.host for change in changes.changes if change.host is not None}
        before = [self._copy.hosts[number].fact for number in hosts]
        for change in changes.changes:
            now = apply_change(self._copy, change, now)
        try:
            yield decided_round(self._copy, now)
        finally:
            self._copy.put_group(self._group.fact, self._group.work)
            for host in before:
                self._copy.put_host(host)


def _highest_winner(round_: Round, hosts: Hosts) -> int | None:
    """Return the highest priority of the task groups that got one of these hosts."""
    found = None
    for action in round_.actions:
        if isinstance(action, Renew) or not hosts >> round_.snapshot.ordinal(action.host) & 1:
            continue
        number = action.group if isinstance(action, Offer) else action.for_group
        if number is not None:
            priority = round_.snapshot.groups[number].fact.priority
            found = priority if found is None else max(found, priority)
    return found
