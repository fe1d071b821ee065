"""A decision under way: what it has given away so far. The snapshot stays as it was."""

from collections.abc import Iterator, Sequence
from itertools import chain

from mitosis.scheduling.actions import EndLease, Offer, Rank, Renew
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import FOREVER, Capacity, Freed, Lease
from mitosis.scheduling.host_sets import NONE, Hosts, ordinals
from mitosis.scheduling.moment import Moment
from mitosis.scheduling.policy import Order
from mitosis.scheduling.predicates import (
    hosts_in_service,
    lasting_hosts,
    unfailed_hosts,
    unleased_hosts,
)
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import GroupState, Profile
from mitosis.scheduling.waiting_groups import WaitingKind

FEW_TIMES = 4
"""To find a lease by its host takes so many times as long as to pass over one in the order of times."""


class Round:
    """The actions decided so far, and what they leave for those that follow."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot = snapshot
        self.moment = Moment(snapshot, now)
        self.now = now
        self.policy = snapshot.policy
        self.actions: list[Offer | EndLease | Renew] = []
        self.full: Hosts = NONE
        """Hosts without a slot for anything more."""
        self.ended: set[int] = set()
        """Leases that this decision ends."""
        self.gains: dict[int, int] = {}
        """Task group → leases that it gets, those on the way from now on included."""
        self.lost: dict[int, int] = {}
        """Task group → its leases that end."""
        self._share_changes: dict[int, int] = {}
        self._left: dict[int, Capacity] = {}
        self._in_service: Hosts | None = None
        self._able: dict[Profile, Hosts] = {}
        self._usable: dict[WaitingKind, Hosts] = {}
        self._unleased: dict[Capacity, Hosts] = {}
        self._free: dict[Profile, Hosts] = {}
        self._unfailed: dict[int, Hosts] = {}
        self._arrived: dict[int, int] = {}
        self._idle_on: Hosts = NONE
        self._idle_leases: Sequence[tuple[Lease, int]] = ()
        """Those on the hosts ``_idle_on`` that have been idle for the least threshold."""
        self.moment.broken_promises = self._broken_promises()

    @property
    def is_over(self) -> bool:
        """Whether there are as many actions as one decision returns."""
        return len(self.actions) >= self.policy.actions_per_round

    def able(self, group: GroupState) -> Hosts:
        """Return the hosts that could serve the profile of a task group, were they free."""
        found = self._able.get(group.profile)
        if found is None:
            found = self._all_in_service(group) & lasting_hosts(self.moment, group)
            self._able[group.profile] = found
        return found

    def _all_in_service(self, some: GroupState) -> Hosts:
        if self._in_service is None:
            self._in_service = hosts_in_service(self.moment, some)
        return self._in_service

    def usable(self, kind: WaitingKind) -> Hosts:
        """Return the hosts that some waiting task group of a kind could use, were they free."""
        found = self._usable.get(kind)
        if found is None:
            found = kind.members & self.able(self.snapshot.groups[kind.some.line[0].number])
            self._usable[kind] = found
        return found

    def free(self, group: GroupState) -> Hosts:
        """Return the hosts that are free for the profile of a task group; see :meth:`room`."""
        found = self._free.get(group.profile)
        if found is None:
            found = self._free[group.profile] = self.able(group) & self._all_unleased(group)
        return found & ~self.full

    def has_free_hosts(self) -> bool:
        """Return whether there are hosts with room for what some waiting task group takes of one."""
        groups, some = self.snapshot.groups, dict[Capacity, GroupState]()
        for kind in self.snapshot.waiting.kinds.values():
            if kind.profile.demand not in some:
                some[kind.profile.demand] = groups[kind.some.line[0].number]
        waiting = chain(some.values(), self.moment.aside)
        return any(
            self._all_unleased(one) & self._all_in_service(one) & ~self.full for one in waiting
        )

    def _all_unleased(self, group: GroupState) -> Hosts:
        demand = group.fact.demand
        found = self._unleased.get(demand)
        if found is None:
            found = self._unleased[demand] = unleased_hosts(self.moment, group)
        return found

    def unfailed(self, group: GroupState) -> Hosts:
        """Return the hosts that no failure keeps from a task group, members or not."""
        number = group.fact.number
        found = self._unfailed.get(number)
        if found is None:
            found = self._unfailed[number] = unfailed_hosts(self.moment, group)
        return found

    def room(self, ordinal: int) -> Capacity:
        """Return what a host still has."""
        left = self._left.get(ordinal)
        return self.snapshot.host_at(ordinal).free if left is None else left

    def no_room(self, group: GroupState, ordinal: int) -> None:
        """Note that a host no longer has what task groups of this profile need."""
        self._free[group.profile] &= ~(1 << ordinal)

    def wanted(self) -> Hosts:
        """Return the hosts that some task group that waited could use, were they free."""
        found = NONE
        for kind in self.snapshot.waiting.kinds.values():
            found |= self.usable(kind)
        for group in self.moment.aside:
            found |= group.fact.members & self.able(group)
        return found

    def idle_leases(self, hosts: Hosts) -> Sequence[tuple[Lease, int]]:
        """Return the leases on these hosts that have been idle for the least threshold, in any order.

        Each has the ordinal of its host. To ask again about some of the hosts takes less time.
        """
        hosts &= self.snapshot.sets.get("idle")
        if hosts & ~self._idle_on:
            found = self._find_idle_leases(hosts)
            self._idle_on = hosts
            self._idle_leases = [pair for pair in found if hosts >> pair[1] & 1]
        found, ended = self._idle_leases, self.ended
        if hosts != self._idle_on:
            found = [pair for pair in found if hosts >> pair[1] & 1]
        return [pair for pair in found if pair[0].number not in ended] if ended else found

    def _find_idle_leases(self, hosts: Hosts) -> Sequence[tuple[Lease, int]]:
        times, leases, states = self.snapshot.times, self.snapshot.leases, self.snapshot.hosts
        if hosts.bit_count() * FEW_TIMES < times.idle.count_due(self.now):
            return list(self._idle_leases_of_few(hosts))
        due = (leases[number] for _, (number,) in times.idle.due(self.now))
        return [(lease, states[lease.host].ordinal) for lease in due]

    def _idle_leases_of_few(self, hosts: Hosts) -> Iterator[tuple[Lease, int]]:
        snapshot, until = self.snapshot, self.now + ROUNDING_SECONDS
        for ordinal in ordinals(hosts):
            for lease in snapshot.leases_on(ordinal):
                if lease.idle_since is None or not self.is_live(lease):
                    continue
                settings = self.policy.settings_of(snapshot.group_of(lease).fact.leases)
                if lease.idle_since + settings.least_idle <= until:
                    yield lease, ordinal

    def given(self, group: GroupState) -> int:
        """Return how many leases this decision gives to a task group, besides hosts on the way to it."""
        return self.gains.get(group.fact.number, 0)

    def missing(self, group: GroupState) -> int:
        """Return how many leases a task group should still get."""
        return self.moment.missing(group) - self.given(group)

    def leases(self, group: GroupState) -> int:
        """Return the leases of a task group, with those on the way."""
        held, number = group.held, group.fact.number
        before = held.live + held.promised - self.moment.broken_promises.get(number, 0)
        return before + self.gains.get(number, 0) - self.lost.get(number, 0)

    def share(self, user_group: int) -> int:
        """Return the leases of a user group, with those on the way."""
        return self.snapshot.share.get(user_group, 0) + self._share_changes.get(user_group, 0)

    def priority(self, group: GroupState) -> float:
        """Return the priority of a task group: above all others if it has starved and still has no host."""
        starved = group.fact.number in self.moment.starved and not self.leases(group)
        return FOREVER if starved else group.fact.priority

    def order(self, group: GroupState) -> float:
        """Return what the line compares first: the smaller is served first."""
        return 0.0 if self.policy.order is Order.AGE else -self.priority(group)

    def hostless(self) -> Sequence[int]:
        """Return the task groups with claimable work and no lease after this decision, nor one on the way."""
        groups = self.snapshot.groups.values()
        waiting = (one for one in groups if one.fact.goes_on and one.work.ready > 0)
        return sorted(one.fact.number for one in waiting if self.leases(one) <= 0)

    def rank(self, group: GroupState) -> Rank:
        """Return the place of a waiting task group in the line."""
        fact, share, leases = group.fact, 0, 0
        if self.policy.order is Order.SHARE:
            share, leases = self.share(fact.user_group), self.leases(group)
        return Rank(self.order(group), share, leases, fact.created_at, fact.number)

    def wants_promised(self, group: GroupState) -> bool:
        """Return whether a task group can use one of the hosts that are on the way to it."""
        promised = self.moment.held(group).promised - self._arrived.get(group.fact.number, 0)
        return group.fact.goes_on and self.missing(group) + promised > 0

    def offer(self, group: GroupState, ordinal: int, *, freed: Freed | None = None) -> None:
        """Offer a host; ``freed``: it was on the way to this task group."""
        host = self.snapshot.host_at(ordinal)
        number = group.fact.number
        self.actions.append(Offer(number, host.fact.number, self.rank(group), freed is not None))
        left = self._left[ordinal] = self.room(ordinal).minus(group.fact.demand)
        if left.slots <= 0:
            self.full |= 1 << ordinal
        # In time as for broken promises: else both count it, or neither does.
        ends_after = self.now + ROUNDING_SECONDS
        if freed is not None and freed.at + self.policy.freed_counts_seconds > ends_after:
            self._arrived[number] = self._arrived.get(number, 0) + 1
        else:
            self.gain(group)

    def gain(self, group: GroupState) -> None:
        """Count a lease more for a task group."""
        number, user_group = group.fact.number, group.fact.user_group
        self.gains[number] = self.gains.get(number, 0) + 1
        self._share_changes[user_group] = self._share_changes.get(user_group, 0) + 1

    def end(self, action: EndLease) -> None:
        """End a lease. The task group that loses it is served again by the next decision."""
        lease = self.snapshot.leases[action.lease]
        self.actions.append(action)
        self.ended.add(lease.number)
        self.lost[lease.group] = self.lost.get(lease.group, 0) + 1
        user_group = self.snapshot.group_of(lease).fact.user_group
        self._share_changes[user_group] = self._share_changes.get(user_group, 0) - 1

    def is_live(self, lease: Lease) -> bool:
        """Return whether a lease can still be ended for another task group."""
        return lease.contestable and lease.number not in self.ended

    def _broken_promises(self) -> dict[int, int]:
        """Return, by task group, the hosts on the way that it could not be offered, or that take too long."""
        snapshot, broken, lost = self.snapshot, dict[int, int](), self._lost_promises()
        groups, promises = snapshot.groups, snapshot.times.promises
        for _, (number, _) in promises.due(self.now):
            if number in groups:
                broken[number] = broken.get(number, 0) + 1
        for _, (number, host) in promises.later(self.now) if lost else ():
            if number in lost and lost[number] >> snapshot.ordinal(host) & 1:
                broken[number] = broken.get(number, 0) + 1
        return broken

    def _lost_promises(self) -> dict[int, Hosts]:
        """Return, by task group, the hosts on the way that it could not be offered."""
        groups, able, lost = self.snapshot.groups, self._able, dict[int, Hosts]()
        doubtful = self.snapshot.sets.of_kind("doubtful")
        for number, hosts in self.snapshot.promises.hosts.items():
            group = groups.get(number)
            if group is None:
                continue
            if group.profile not in able:
                self.able(group)
            # AND with a negative number, such as ~members, takes far more time.
            left = hosts & group.fact.members & able[group.profile]
            if number in doubtful and left & doubtful[number]:
                left &= self.unfailed(group)
            if left != hosts:
                lost[number] = hosts ^ left
        return lost
