"""Which leased hosts a waiting task group could take, as sets: so a round examines few leases.

The sets are exact while a host has one lease. With several, they contain each host of which one lease could
be taken; ``claims`` decides about each.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge

from mitosis.scheduling.claims import goes_before
from mitosis.scheduling.costs import drain_seconds
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.host_sets import NONE, Hosts
from mitosis.scheduling.policy import Preemption
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState


@dataclass(slots=True)
class Holder:
    """A task group, and the hosts of its leases that others may take."""

    group: GroupState
    cost_seconds: float
    """Host time that it costs to free one of them."""
    due: Hosts = NONE
    renewed: Hosts = NONE
    """Only for task groups without any host."""

    def hosts(self, *, hostless: bool) -> Hosts:
        """Return the hosts that a task group with or without a host may take."""
        return self.due | self.renewed if hostless else self.due


def cheapest_first(
    round_: Round, group: GroupState, holders: Sequence[Holder], hosts: Hosts
) -> Iterator[Hosts]:
    """Yield the hosts of a set in parts of equal cost, least teardown, setup and drain first.

    ``holders``: in the order of their costs. A host with the environment of the task group needs no setup.
    """
    warm = hosts & round_.snapshot.sets.get("warm", group.fact.number)

    def parts(of: Hosts, setup: float) -> Iterator[tuple[float, Hosts]]:
        for holder in holders if of else ():
            found = of & holder.hosts(hostless=True)
            if found:
                yield holder.cost_seconds + setup, found

    for _, found in merge(parts(warm, 0.0), parts(hosts & ~warm, group.work.setup_seconds)):
        yield found


class IdleHosts:
    """Hosts with an idle lease, by how long a setup they may be given to.

    A lease that has been idle for t may be taken if t is at least the greatest threshold, or at least its
    teardown and the setup of the waiting task group together.
    """

    def __init__(self, round_: Round) -> None:
        self._round = round_
        holders = _Holders(round_, lambda holder: holder.work.teardown_seconds)
        entries = []
        for _, (number,) in round_.snapshot.idle.due(round_.now):
            lease = round_.snapshot.leases[number]
            if number not in round_.ended:
                bit = 1 << round_.snapshot.ordinal(lease.host)
                holders.of(lease.group).due |= bit
                entries.append((self._longest_setup(lease), bit))
        entries.sort()
        self._longest = [longest for longest, _ in entries]
        self._hosts = [NONE] * (len(entries) + 1)
        for place in range(len(entries) - 1, -1, -1):
            self._hosts[place] = self._hosts[place + 1] | entries[place][1]
        self._holders = holders.by_cost()

    @property
    def all(self) -> Hosts:
        """Hosts that have been idle for the least threshold."""
        return self._hosts[0]

    def takeable(self, group: GroupState, hosts: Hosts) -> Iterator[Hosts]:
        """Yield those of the hosts that have been idle for long enough for a task group, cheapest first."""
        ripe = hosts & self._hosts[bisect_left(self._longest, group.work.setup_seconds)]
        if ripe:
            yield from cheapest_first(self._round, group, self._holders, ripe)

    def _longest_setup(self, lease: Lease) -> float:
        holder = self._round.snapshot.group_of(lease)
        settings = self._round.policy.settings_of(holder.fact.leases)
        idle_for = self._round.now - (lease.idle_since or 0.0) + ROUNDING_SECONDS
        if idle_for >= settings.longest_idle:
            return FOREVER
        return idle_for - holder.work.teardown_seconds


@dataclass(slots=True)
class _Class:
    """Holders of one priority and user group: another user group goes before all of them, or before none."""

    priority: int
    user_group: int
    holders: list[Holder] = field(default_factory=list)
    due: Hosts = NONE
    renewed: Hosts = NONE

    def hosts(self, *, hostless: bool) -> Hosts:
        return self.due | self.renewed if hostless else self.due


class BusyHosts:
    """Hosts with a lease past its affinity, by who holds it."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._classes = self._by_class(self._holders().by_cost())
        self._reach: dict[tuple[float, int, int], Sequence[tuple[_Class, Hosts]]] = {}
        self.all: Hosts = NONE
        """Hosts that some task group could take."""
        for one in self._classes:
            self.all |= one.due | one.renewed

    def takeable(self, group: GroupState, hosts: Hosts) -> Iterator[Hosts]:
        """Yield those of the hosts that a task group may take, of the weakest holders first."""
        for one, reach in self._reached(group):
            if hosts & reach:
                yield from cheapest_first(self._round, group, one.holders, hosts & reach)

    def shares_changed(self) -> None:
        """Forget what depends on the numbers of leases."""
        self._reach.clear()

    def _reached(self, group: GroupState) -> Sequence[tuple[_Class, Hosts]]:
        """Return the classes of which a task group may take hosts, and these hosts."""
        leases = self._round.leases(group)
        key = (self._round.priority(group), group.fact.user_group, leases)
        found = self._reach.get(key)
        if found is None:
            parts = [
                (one, self._of_class(group, one, hostless=not leases)) for one in self._classes
            ]
            found = self._reach[key] = [part for part in parts if part[1]]
        return found

    def _of_class(self, group: GroupState, one: _Class, *, hostless: bool) -> Hosts:
        equal = self._round.priority(group) == one.priority
        if equal and group.fact.user_group == one.user_group:
            found = NONE
            for holder in one.holders:
                if goes_before(self._round, group, holder.group):
                    found |= holder.hosts(hostless=hostless)
            return found
        first = goes_before(self._round, group, one.holders[0].group)
        return one.hosts(hostless=hostless) if first else NONE

    def _holders(self) -> "_Holders":
        snapshot, policy = self._round.snapshot, self._round.policy
        found = _Holders(self._round, _freeing_seconds)
        if policy.preemption is Preemption.NEVER:
            return found
        for number, hosts in snapshot.hosts_by_group("renewed"):
            found.of(number).renewed = hosts
        if policy.preemption is Preemption.ALWAYS:
            for number, hosts in snapshot.hosts_by_group("held"):
                found.of(number).due = hosts
            return found
        for _, (number,) in snapshot.affinity.due(self._round.now):
            lease = snapshot.leases[number]
            if number not in self._round.ended:
                found.of(lease.group).due |= 1 << snapshot.ordinal(lease.host)
        return found

    def _by_class(self, holders: Iterable[Holder]) -> list[_Class]:
        """Return the classes, weakest first: the lowest priority, then the most leases."""
        found: dict[tuple[int, int], _Class] = {}
        for holder in holders:
            name = (holder.group.fact.priority, holder.group.fact.user_group)
            one = found.setdefault(name, _Class(*name))
            one.holders.append(holder)
            one.due |= holder.due
            one.renewed |= holder.renewed
        share = self._round.share
        return sorted(
            found.values(), key=lambda one: (one.priority, -share(one.user_group), one.user_group)
        )


def _freeing_seconds(holder: GroupState) -> float:
    drain = drain_seconds(holder.work, holder.fact.workers)
    return holder.work.teardown_seconds + drain


class _Holders:
    """Holders by the number of their task group."""

    def __init__(self, round_: Round, cost: Callable[[GroupState], float]) -> None:
        self._groups = round_.snapshot.groups
        self._cost = cost
        self._found: dict[int, Holder] = {}

    def of(self, number: int) -> Holder:
        found = self._found.get(number)
        if found is None:
            group = self._groups[number]
            found = self._found[number] = Holder(group, self._cost(group))
        return found

    def by_cost(self) -> list[Holder]:
        return sorted(
            self._found.values(), key=lambda holder: (holder.cost_seconds, holder.group.fact.number)
        )
