"""Which leased hosts a waiting task group could take, as sets: so a round examines few leases.

The sets are exact while a host has one lease. With several, they contain each host of which one lease could
be taken; ``claims`` decides about each.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from mitosis.scheduling.claims import goes_before
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.host_sets import NONE, Hosts
from mitosis.scheduling.policy import Preemption
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState


class IdleHosts:
    """Hosts with an idle lease, by how long a setup they may be given to.

    A lease that has been idle for t may be taken if t is at least the greatest threshold, or at least its
    teardown and the setup of the waiting task group together.
    """

    def __init__(self, round_: Round) -> None:
        entries = sorted(
            (self._longest_setup(round_, lease), 1 << round_.snapshot.ordinal(lease.host))
            for _, (number,) in round_.snapshot.idle.due(round_.now)
            if round_.is_live(lease := round_.snapshot.leases[number])
        )
        self._longest = [longest for longest, _ in entries]
        self._hosts = [NONE] * (len(entries) + 1)
        for place in range(len(entries) - 1, -1, -1):
            self._hosts[place] = self._hosts[place + 1] | entries[place][1]

    @property
    def all(self) -> Hosts:
        """Hosts that have been idle for the least threshold."""
        return self._hosts[0]

    def ripe_for(self, group: GroupState) -> Hosts:
        """Return the hosts that have been idle for long enough for this task group."""
        return self._hosts[bisect_left(self._longest, group.work.setup_seconds)]

    @staticmethod
    def _longest_setup(round_: Round, lease: Lease) -> float:
        holder = round_.snapshot.group_of(lease)
        greatest = round_.policy.settings_of(holder.fact.leases).idle_seconds.greatest
        idle_for = round_.now - (lease.idle_since or 0.0) + ROUNDING_SECONDS
        return FOREVER if idle_for >= greatest else idle_for - holder.work.teardown_seconds


@dataclass(slots=True)
class _Holder:
    """A task group, and the hosts of its leases that may be taken by those that go first."""

    group: GroupState
    due: Hosts = NONE
    renewed: Hosts = NONE

    def hosts(self, *, hostless: bool) -> Hosts:
        return self.due | self.renewed if hostless else self.due


@dataclass(slots=True)
class _Class:
    """Holders of one priority and user group: another user group goes before all of them, or before none."""

    priority: int
    user_group: int
    holders: list[_Holder] = field(default_factory=list)
    due: Hosts = NONE
    renewed: Hosts = NONE

    def add(self, holder: _Holder) -> None:
        self.holders.append(holder)
        self.due |= holder.due
        self.renewed |= holder.renewed

    def hosts(self, *, hostless: bool) -> Hosts:
        return self.due | self.renewed if hostless else self.due


class BusyHosts:
    """Hosts with a lease past its affinity, by who holds it."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._classes = self._by_class(self._holders())
        self._reach: dict[tuple[float, int, int], Sequence[Hosts]] = {}
        self.all: Hosts = NONE
        """Hosts that some task group could take."""
        for one in self._classes:
            self.all |= one.due | one.renewed

    def reach(self, group: GroupState) -> Sequence[Hosts]:
        """Return the hosts that a waiting task group may take, those of the weakest holders first."""
        leases = self._round.leases(group)
        key = (self._round.priority(group), group.fact.user_group, leases)
        found = self._reach.get(key)
        if found is None:
            parts = (self._of_class(group, one, hostless=not leases) for one in self._classes)
            found = self._reach[key] = [hosts for hosts in parts if hosts]
        return found

    def shares_changed(self) -> None:
        """Forget what depends on the numbers of leases."""
        self._reach.clear()

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

    def _holders(self) -> Sequence[_Holder]:
        found: dict[int, _Holder] = {}
        snapshot, policy = self._round.snapshot, self._round.policy
        if policy.preemption is Preemption.NEVER:
            return []

        def of(number: int) -> _Holder:
            return found.setdefault(number, _Holder(snapshot.groups[number]))

        for number, hosts in snapshot.sets.of_kind("renewed").items():
            assert isinstance(number, int)  # noqa: S101 - see set_names
            of(number).renewed = hosts
        if policy.preemption is Preemption.ALWAYS:
            for number, hosts in snapshot.sets.of_kind("held").items():
                assert isinstance(number, int)  # noqa: S101 - see set_names
                of(number).due = hosts
            return list(found.values())
        for _, (lease_number,) in snapshot.affinity.due(self._round.now):
            lease = snapshot.leases[lease_number]
            if lease.number not in self._round.ended:
                of(lease.group).due |= 1 << snapshot.ordinal(lease.host)
        return list(found.values())

    def _by_class(self, holders: Sequence[_Holder]) -> list[_Class]:
        """Return the classes, weakest first: the lowest priority, then the most leases."""
        found: dict[tuple[int, int], _Class] = {}
        for holder in holders:
            name = (holder.group.fact.priority, holder.group.fact.user_group)
            found.setdefault(name, _Class(*name)).add(holder)
        share = self._round.share
        return sorted(
            found.values(), key=lambda one: (one.priority, -share(one.user_group), one.user_group)
        )
