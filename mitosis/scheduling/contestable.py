"""Which leased hosts a waiting task group could take, as sets: so a round examines few leases.

The sets are exact while a host has one lease. With several, they contain each host of which one lease could
be taken; ``claims`` decides about each.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import merge
from operator import itemgetter, or_

from mitosis.scheduling.claims import goes_before, goes_before_all, ranks_before
from mitosis.scheduling.costs import drain_seconds
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.host_sets import EVERY, NONE, Hosts, set_of
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

    ``holders``: in the order of their costs. A host with the environment of the task group needs no setup; it
    goes first among equals.
    """
    warm = hosts & round_.snapshot.sets.get("warm", group.fact.number)

    def parts(of: Hosts, setup: float) -> Iterator[tuple[float, Hosts]]:
        for holder in holders if of else ():
            found = of & holder.hosts(hostless=True)
            if found:
                yield holder.cost_seconds + setup, found

    cold = parts(hosts & ~warm, group.work.setup_seconds)
    if not warm:
        yield from (found for _, found in cold)
        return
    for _, found in merge(parts(warm, 0.0), cold, key=itemgetter(0)):
        yield found


class IdleHosts:
    """Hosts with an idle lease, by how long a setup they may be given to.

    A lease that has been idle for t may be taken if t is at least the greatest threshold, or at least its
    teardown and the setup of the waiting task group together.
    """

    def __init__(self, round_: Round, wanted: Hosts) -> None:
        """Find them; ``wanted``: hosts that some waiting task group could use, were they free."""
        self._round = round_
        self._holders: Sequence[Holder] | None = None
        self._leases = round_.idle_leases(wanted)
        groups, terms = round_.snapshot.groups, round_.policy.leases
        now, entries, rested = round_.now + ROUNDING_SECONDS, [], []
        for lease, ordinal in self._leases:
            holder = groups[lease.group]
            idle_for = now - (lease.idle_since or 0.0)
            if idle_for >= (holder.fact.leases or terms).longest_idle:
                rested.append(ordinal)
            else:
                entries.append((idle_for - holder.work.teardown_seconds, ordinal))
        entries.sort(reverse=True)
        self._longest = [longest for longest, _ in reversed(entries)]
        self._hosts = [set_of(rested) if rested else NONE]
        for _, ordinal in entries:
            self._hosts.append(self._hosts[-1] | 1 << ordinal)
        self._hosts.reverse()

    @property
    def all(self) -> Hosts:
        """Hosts that have been idle for the least threshold."""
        return self._hosts[0]

    def ripe(self, setup_seconds: float) -> Hosts:
        """Return the hosts that have been idle for long enough for a setup of this duration."""
        return self._hosts[bisect_left(self._longest, setup_seconds)]

    def takeable(self, group: GroupState, hosts: Hosts) -> Iterator[Hosts]:
        """Yield those of the hosts that have been idle for long enough for a task group, cheapest first."""
        ripe = hosts & self.ripe(group.work.setup_seconds)
        if ripe:
            yield from cheapest_first(self._round, group, self._by_cost(), ripe)

    def _by_cost(self) -> Sequence[Holder]:
        if self._holders is None:
            groups, held = self._round.snapshot.groups, dict[int, Hosts]()
            for lease, ordinal in self._leases:
                held[lease.group] = held.get(lease.group, NONE) | 1 << ordinal
            self._holders = _cheapest(
                Holder(groups[number], groups[number].work.teardown_seconds, hosts)
                for number, hosts in held.items()
            )
        return self._holders


@dataclass(slots=True)
class _Class:
    """Holders of one priority and user group: another user group goes before all of them, or before none."""

    priority: int
    user_group: int
    due: Hosts = NONE
    renewed: Hosts = NONE
    holders: Sequence[Holder] = ()
    """Least cost first. Made when a task group may take one of the hosts."""
    reach: dict[int, Hosts] | None = None
    """What a task group of the same priority and user group may take, by the number of its leases."""

    def hosts(self, *, hostless: bool) -> Hosts:
        return self.due | self.renewed if hostless else self.due


class BusyHosts:
    """Hosts with a lease past its affinity, by who holds it.

    Most decisions find none that some task group could take. So the classes come from sets that the snapshot
    keeps between decisions, and a task group that holds leases is looked at only if others want these hosts.
    """

    def __init__(self, round_: Round, wanted: Hosts) -> None:
        """Find them; ``wanted``: hosts that some waiting task group could use, were they free."""
        self._round = round_
        self._wanted = wanted
        self._reached: dict[tuple[float, int, bool], Hosts] = {}
        self._up_to: dict[float, Hosts] = {}
        self._due: dict[int, Hosts] = {}
        """By the number of the task group that holds them."""
        self._are_grouped = False
        self._weakest_first: Sequence[_Class] | None = None
        self.due: Hosts = NONE
        """Hosts that a task group with a host could take."""
        self.renewed: Hosts = NONE
        """Hosts that a task group without any host could take as well."""
        if round_.policy.preemption is not Preemption.NEVER:
            self._find()
        self.all = self.due | self.renewed

    def takeable(self, group: GroupState, hosts: Hosts) -> Iterator[Hosts]:
        """Yield those of the hosts that a task group may take, of the weakest holders first."""
        leases = self._round.leases(group)
        hosts &= self.due if leases else self.all
        for one in self._classes if hosts else ():
            found = hosts & one.hosts(hostless=not leases)
            if found:
                found &= self._reach(group, one, leases)
            if found:
                yield from cheapest_first(self._round, group, self._holders(one), found)

    def reached(self, priority: float, user_group: int, *, hostless: bool) -> Hosts:
        """Return the hosts that some task group of this priority and user group may take.

        hostless: whether it has no host.
        """
        mine, name = (priority, user_group), (priority, user_group, hostless)
        found = self._reached.get(name)
        if found is None:
            found = NONE
            for one in self._classes:
                if one.priority > priority:
                    break
                hosts = one.due | one.renewed if hostless else one.due
                if not hosts & ~found:
                    continue
                before = ranks_before(self._round, mine, (one.priority, one.user_group))
                if before is not False:
                    found |= hosts
            self._reached[name] = found
        return found

    def up_to(self, priority: float) -> Hosts:
        """Return the hosts whose holders have at most this priority."""
        found = self._up_to.get(priority)
        if found is None:
            found = NONE
            for one in self._classes:
                if one.priority <= priority:
                    found |= one.due | one.renewed
            self._up_to[priority] = found
        return found

    def shares_changed(self) -> None:
        """Forget what depends on the numbers of leases."""
        self._reached.clear()
        for one in self._weakest_first or ():
            one.reach = None

    def _reach(self, group: GroupState, one: _Class, leases: int) -> Hosts:
        """Return the hosts of a class whose holders a task group goes before."""
        before = goes_before_all(self._round, group, one.priority, one.user_group)
        if before is not None:
            return EVERY if before else NONE
        if one.reach is None:
            one.reach = {}
        found = one.reach.get(leases)
        if found is None:
            found = NONE
            for holder in self._holders(one):
                if goes_before(self._round, group, holder.group):
                    found |= holder.hosts(hostless=not leases)
            one.reach[leases] = found
        return found

    @property
    def _classes(self) -> Sequence[_Class]:
        """The lowest priority first, then the most leases. Most decisions need none of them.

        Before the first host is taken, the line asks ``up_to``: so leases count as of then.
        """
        if self._weakest_first is None:
            share = self._round.share
            self._weakest_first = sorted(
                self._all_classes(),
                key=lambda one: (one.priority, -share(one.user_group), one.user_group),
            )
        return self._weakest_first

    def _find(self) -> None:
        sets = self._round.snapshot.sets
        self.renewed = self._wanted & reduce(or_, sets.of_kind("renewed_by").values(), NONE)
        if self._is_always:
            self.due = self._wanted & reduce(or_, sets.of_kind("held_by").values(), NONE)
        else:
            self._find_due()

    @property
    def _is_always(self) -> bool:
        return self._round.policy.preemption is Preemption.ALWAYS

    def _all_classes(self) -> Iterable[_Class]:
        sets, groups = self._round.snapshot.sets, self._round.snapshot.groups
        found: dict[Hashable, _Class] = {}
        if not self.all:
            return ()
        for name, hosts in sets.of_kind("renewed_by").items():
            if wanted := hosts & self._wanted:
                _class_of(found, name).renewed = wanted
        for name, hosts in sets.of_kind("held_by").items() if self._is_always else ():
            if wanted := hosts & self._wanted:
                _class_of(found, name).due = wanted
        for group, wanted in self._due.items():
            holder = groups[group].fact
            _class_of(found, (holder.priority, holder.user_group)).due |= wanted
        return found.values()

    def _find_due(self) -> None:
        snapshot, ended = self._round.snapshot, self._round.ended
        due: dict[int, list[int]] = {}
        for _, (number,) in snapshot.times.affinity.due(self._round.now):
            if number not in ended:
                lease = snapshot.leases[number]
                due.setdefault(lease.group, []).append(snapshot.ordinal(lease.host))
        for group, of_group in due.items():
            if wanted := set_of(of_group) & self._wanted:
                self._due[group] = wanted
                self.due |= wanted

    def _holders(self, one: _Class) -> Sequence[Holder]:
        """Return the task groups of a class that hold leases, least cost first."""
        if not self._are_grouped:
            self._are_grouped = True
            self._group_holders()
        return one.holders

    def _group_holders(self) -> None:
        snapshot = self._round.snapshot
        due: Mapping[int, Hosts] = self._due
        if self._is_always:
            due = dict(snapshot.sets.by_group("held"))
        renewed = dict(snapshot.sets.by_group("renewed"))
        by_name = {(one.priority, one.user_group): one for one in self._classes}
        holders, of_class = [], dict[tuple[int, int], list[Holder]]()
        for number in {**due, **renewed}:
            group = snapshot.groups[number]
            parts = due.get(number, NONE), renewed.get(number, NONE)
            holders.append(Holder(group, _freeing_seconds(group), *parts))
        for holder in _cheapest(holders):
            fact = holder.group.fact
            of_class.setdefault((fact.priority, fact.user_group), []).append(holder)
        for name, of in of_class.items():
            if name in by_name:
                by_name[name].holders = of


def _class_of(classes: dict[Hashable, _Class], name: Hashable) -> _Class:
    found = classes.get(name)
    if found is None:
        assert isinstance(name, tuple)  # noqa: S101 - see set_names
        found = classes[name] = _Class(*name)
    return found


def _freeing_seconds(holder: GroupState) -> float:
    drain = drain_seconds(holder.work, holder.fact.workers)
    return holder.work.teardown_seconds + drain


def _cheapest(holders: Iterable[Holder]) -> Sequence[Holder]:
    return sorted(holders, key=lambda holder: (holder.cost_seconds, holder.group.fact.number))
