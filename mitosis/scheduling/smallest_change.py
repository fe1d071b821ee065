"""The smallest change after which some host would be given to a task group.

For each host the changes are summed that make all conditions hold; the cheapest sums are tried. A change is
returned only if a decision with its effect leads to a lease.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from mitosis.scheduling import contest_sentences
from mitosis.scheduling.actions import EndLease, Offer, Renew, gains_of
from mitosis.scheduling.alike_hosts import first_of_each_kind
from mitosis.scheduling.changes import Change, ChangeKind, apply_change
from mitosis.scheduling.claims import Objection, ObjectionKind, claim, threshold_seconds
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.host_sets import Hosts
from mitosis.scheduling.predicates import Condition
from mitosis.scheduling.remedies import (
    max_managers,
    priority_above,
    priority_of,
    remedy,
    submit,
    wait_until,
)
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState, HostState

TRIED = 12
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
    def price(self) -> tuple[float, float]:
        """Return the sum of the prices, and between equal ones how much is changed."""
        return (
            sum(change.price for change in self.changes),
            sum(change.size for change in self.changes),
        )

    @property
    def line(self) -> str:
        """Return all of them in one line."""
        return ", then ".join(change.line for change in self.changes)

    def without(self, change: Change) -> "Changes":
        """Return the others."""
        return Changes(tuple(one for one in self.changes if one is not change))

    def having(self, change: Change) -> "Changes":
        """Return them with this change in the place of the one of its kind; a new one comes first."""
        if any(one.kind is change.kind for one in self.changes):
            return Changes(
                tuple(change if one.kind is change.kind else one for one in self.changes)
            )
        return Changes((change, *self.changes))


def smallest_change(
    round_: Round, group: GroupState, conditions: Sequence[Condition]
) -> Changes | None:
    """Return the cheapest changes that lead to a lease, confirmed by decisions."""
    hosts = first_of_each_kind(round_, conditions, TRIED)
    needed = (needed_changes(round_, group, host, conditions) for host in hosts)
    found = [(changes, group) for changes in dict.fromkeys(filter(None, needed))]
    trials = _Trials(round_, group)
    return _cheapest(found, TRIED, lambda _: trials) or trials.shortest_wait()


def smallest_change_on(
    round_: Round, host: HostState, groups: Iterable[tuple[GroupState, Sequence[Condition]]]
) -> Changes | None:
    """Return the cheapest changes after which the host serves one of these task groups."""
    found = [
        (changes, group)
        for group, conditions in groups
        if (changes := needed_changes(round_, group, host, conditions)) is not None
    ]
    return _cheapest(found, TRIED_ON_A_HOST, lambda group: _Trials(round_, group, host.fact.number))


def _cheapest(
    found: Sequence[tuple[Changes, GroupState]],
    tried: int,
    trials_of: Callable[[GroupState], "_Trials"],
) -> Changes | None:
    """Return the cheapest of the changes that a decision confirms, and none more than are necessary."""
    best: Changes | None = None
    trials: dict[int, _Trials] = {}
    for needed, group in sorted(found, key=lambda pair: pair[0].price)[:tried]:
        if best is not None and best.price <= needed.price:
            break
        number = group.fact.number
        if number not in trials:
            trials[number] = trials_of(group)
        confirmed = trials[number].confirmed(needed)
        if confirmed is not None:
            least = trials[number].reduced(confirmed)
            best = least if best is None or least.price < best.price else best
    return best


def needed_changes(
    round_: Round, group: GroupState, host: HostState, conditions: Sequence[Condition]
) -> Changes | None:
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
    waits = _waits(changes)
    # The wait comes last: what is done after it may come too late, for the lease is renewed then.
    return Changes((*_without_waits(changes), *([_longest_wait(changes)] if waits else [])))


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
        changes: Sequence[Change] | None = []
        if lease.number in round_.ended:
            changes = _before_the_winner(round_, group, lease)
        elif isinstance(right, Objection):
            changes = _against(round_, group, host, right)
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


def _before_the_winner(round_: Round, group: GroupState, lease: Lease) -> Sequence[Change] | None:
    """Return the change by which the task group takes a lease that this decision ends for another one.

    One that is ended for none, as on a host that drains, may stay after the change of what ends it.
    """
    ends = (action for action in round_.actions if isinstance(action, EndLease))
    winner = next(action.for_group for action in ends if action.lease == lease.number)
    if winner is None:
        return []
    raised = priority_above(group, round_.snapshot.groups[winner].fact.priority)
    return None if raised is None else [raised]


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
    if raised is None:
        return None
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


class _Lazily(Sequence[Change]):
    """Changes that are made when they are asked for."""

    def __init__(self, numbers: range, make: Callable[[int], Change]) -> None:
        self._numbers = numbers
        self._make = make

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        return self._make(self._numbers[place])


class _Trials:
    """Tries changes on one copy of the snapshot, which is put back after each."""

    def __init__(self, round_: Round, group: GroupState, host: int | None = None) -> None:
        """``host``: only a lease on this one counts."""
        self._now = round_.now
        self._round = round_
        self._copy = round_.snapshot.copy()
        self._group = group
        self._number = group.fact.number
        self._host = host

    def confirmed(self, needed: Changes) -> Changes | None:
        """Return the changes if they lead to a lease, with a higher priority where others go first."""
        changes = needed
        for _ in range(RAISED):
            with self._decided_after(changes) as tried:
                if self._gains_by(tried):
                    return changes
                mine = tried.snapshot.groups[self._number].fact
                above = _highest_winner(tried, mine.members)
            if above is None or above < mine.priority:
                return None
            raised = priority_above(self._group, above)
            if raised is None:
                return None
            changes = changes.having(raised)
        return None

    def reduced(self, confirmed: Changes) -> Changes:
        """Return the changes without those that are not necessary, and with the least numbers."""
        least, before = confirmed, None
        while least is not before:
            before = least
            for change in before.changes:
                if len(least.changes) > 1 and self._lead_to_a_lease(least.without(change)):
                    least = least.without(change)
        for change in least.changes:
            least = self._with_least_number(least, change)
        return least

    def shortest_wait(self) -> Changes | None:
        """Return the first time at which it is given a host if nothing but the clock changes."""
        if not (self._group.fact.goes_on and self._group.work.ready):
            return None
        waits = (Changes((wait,)) for wait in self._shorter_waits(FOREVER))
        return next((one for one in waits if self._lead_to_a_lease(one)), None)

    def _with_least_number(self, changes: Changes, enough: Change) -> Changes:
        """Return the changes with the least number of this kind that leads to a lease too."""
        options = self._lesser(enough)
        place = bisect_left(
            options, True, key=lambda one: self._lead_to_a_lease(changes.having(one))
        )
        return changes.having(options[place]) if place < len(options) else changes

    def _lesser(self, change: Change) -> Sequence[Change]:
        """Return smaller changes of the same kind, the smallest first: those that may be enough."""
        group, number = self._group, int(change.value)
        match change.kind:
            case ChangeKind.SUBMIT:
                return _Lazily(range(group.work.ready + 1, number), partial(submit, group))
            case ChangeKind.MAX_MANAGERS:
                least = (group.fact.max_managers or 0) + 1
                return _Lazily(range(least, number), partial(max_managers, group))
            case ChangeKind.PRIORITY:
                return self._lesser_priorities(number)
            case ChangeKind.WAIT:
                return self._shorter_waits(change.value)
            case _:
                return ()

    def _shorter_waits(self, before: float) -> Sequence[Change]:
        """Return the waits for the first times at which the clock alone changes something, for any host."""
        snapshot, now = self._copy, self._now
        times = [
            (at, f"{host.name} is tried again then", host.number)
            for at, (ordinal, _) in islice(snapshot.times.retries.later(now), TRIED)
            for host in [snapshot.host_at(ordinal).fact]
        ]
        leases = [*islice(self._affinities(), TRIED), *self._idle_times()]
        times += (
            (at, contest_sentences.wait(kind, host), host.fact.number)
            for at, kind, lease in leases
            for host in [snapshot.hosts[lease.host]]
        )
        return [
            wait_until(self._round.moment, self._group, snapshot.hosts[host], at, why)
            for at, why, host in sorted(times)[:TRIED]
            if at < before
        ]

    def _affinities(self) -> Iterator[tuple[float, ObjectionKind, Lease]]:
        """Yield the ends of affinities of other task groups, earliest first."""
        for at, (number,) in self._copy.times.affinity.later(self._now):
            lease = self._copy.leases[number]
            if lease.group != self._number:
                yield at, ObjectionKind.AFFINITY, lease

    def _idle_times(self) -> Iterator[tuple[float, ObjectionKind, Lease]]:
        """Yield when leases of other task groups are idle for as long as this one needs, in any order."""
        idle, now = self._copy.times.idle, self._now
        # The times are those of the least threshold: this task group may need more.
        for _, (number,) in (*idle.due(now), *idle.later(now)):
            lease = self._copy.leases[number]
            if lease.group == self._number:
                continue
            needed = threshold_seconds(self._round, self._group, lease)
            at = (lease.idle_since or 0.0) + needed
            if at > now + ROUNDING_SECONDS:
                yield at, ObjectionKind.IDLE, lease

    def _lesser_priorities(self, below: int) -> Sequence[Change]:
        """Return the priorities of other task groups, and those just above them."""
        mine = self._group.fact.priority
        known = {group.fact.priority for group in self._copy.groups.values()}
        options = (
            priority_above(self._group, value - 1)
            if value - 1 in known and value - 1 != mine
            else priority_of(self._group, value)
            for value in sorted(known | {priority + 1 for priority in known})
            if mine < value < below
        )
        return [change for change in options if change is not None]

    def _lead_to_a_lease(self, changes: Changes) -> bool:
        with self._decided_after(changes) as tried:
            return self._gains_by(tried)

    def _gains_by(self, tried: Round) -> bool:
        gains = gains_of(tried.actions, self._number)
        return any(self._host in (None, gain.host) for gain in gains)

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
