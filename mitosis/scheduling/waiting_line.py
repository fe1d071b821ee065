"""The waiting task groups in the order in which they are served, while every lease given changes that order.

A lane holds the task groups of one priority and one user group. A lease changes the share of its user group:
that moves whole lanes, not the task groups in them.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from mitosis.scheduling.host_sets import Hosts
from mitosis.scheduling.policy import Order
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import Bucket, GroupState, bucket_of_one

Entry = tuple[float, int, tuple[int, float, int], "Lane"]
"""A lane: minus its priority, its share and its first task group."""
Place = tuple[int, float, int, int, Bucket]
"""A task group: its key, its position in its bucket, or -1 if it stands in the lane by itself; its bucket."""


class Lane(NamedTuple):
    """Minus the priority, and the user group; 0 where shares make no difference."""

    order: float
    user_group: int


class WaitingLine:
    """Yields waiting task groups, best first, each with its bucket.

    The next task group of a bucket enters its lane when the one before it was yielded. So buckets without any
    host cost nothing, however many task groups they have.
    """

    def __init__(
        self,
        round_: Round,
        hosts_of: Callable[[GroupState], Hosts],
        of_bucket: Callable[[Bucket], Hosts] | None = None,
    ) -> None:
        """Line them up.

        Args:
            round_: the decision.
            hosts_of: the hosts for task groups of a profile, members or not.
            of_bucket: the hosts for task groups of a bucket, where not all of its members come into question.
        """
        self._round = round_
        self._groups = round_.snapshot.groups
        self._by_share = round_.policy.order is Order.SHARE
        self.hosts: dict[Bucket, Hosts] = {}
        """Hosts that each bucket may use; only buckets that have some."""
        self._lanes: dict[Lane, list[Place]] = {}
        self._order: list[Entry] = []
        self._current: dict[Lane, Entry] = {}
        """The entry of each lane that counts; the others of that lane are left over in the order."""
        for kind in round_.snapshot.waiting.kinds.values():
            mask = hosts_of(self._groups[kind.some.line[0].number])
            if not kind.members & mask:
                continue
            lane = self._lane_of(-kind.priority, kind.profile.user_group)
            for bucket in kind.buckets.values():
                hosts = bucket.members & mask
                if hosts and of_bucket is not None:
                    hosts &= of_bucket(bucket)
                if hosts:
                    self.hosts[bucket] = hosts
                    self._enter(bucket, 0, lane)
        self._enter_others(hosts_of, of_bucket)
        self._current = {lane: self._entry(lane) for lane in self._lanes}
        self._order = list(self._current.values())
        heapify(self._order)

    def __iter__(self) -> Iterator[tuple[GroupState, Bucket]]:
        order = self._order
        while order:
            entry = order[0]
            lane = entry[-1]
            if self._current.get(lane) is not entry:
                heappop(order)
                continue
            places = self._lanes[lane]
            if not places:
                heappop(order)
                del self._current[lane]
                continue
            now = self._entry(lane)
            if now != entry:
                self._current[lane] = now
                heapreplace(order, now)
                continue
            _, _, number, position, bucket = heappop(places)
            if bucket not in self.hosts:
                continue
            if position >= 0:
                self._enter(bucket, position + 1, lane)
            if position < 0 or number not in self._round.moment.starved:
                yield self._groups[number], bucket

    def again(self, group: GroupState, bucket: Bucket) -> None:
        """Let a task group stand in the line by itself: after it got a lease, its place is another one."""
        leases = self._round.leases(group) if self._by_share else 0
        place = (leases, group.fact.created_at, group.fact.number, -1, bucket)
        lane = self._lane(group)
        heappush(self._lanes.setdefault(lane, []), place)
        if lane not in self._current:
            self._move(lane)

    def exhaust(self, bucket: Bucket) -> None:
        """Leave out all task groups of a bucket: there is no host for them any more."""
        del self.hosts[bucket]

    def share_fell(self, user_group: int) -> None:
        """Move the lanes of a user group forward that has lost a lease."""
        if self._by_share:
            for lane, places in self._lanes.items():
                if lane.user_group == user_group and places:
                    self._move(lane)

    def _enter_others(
        self,
        hosts_of: Callable[[GroupState], Hosts],
        of_bucket: Callable[[Bucket], Hosts] | None,
    ) -> None:
        """Enter task groups that only the clock makes wait, or wait in another place than their bucket."""
        moment = self._round.moment
        for group in moment.aside:
            hosts = group.fact.members & hosts_of(group)
            if not hosts:
                continue
            bucket = bucket_of_one(group)
            if of_bucket is not None and group.fact.number not in moment.starved:
                hosts &= of_bucket(bucket)
            if hosts:
                self.hosts[bucket] = hosts
                self.again(group, bucket)

    def _enter(self, bucket: Bucket, position: int, lane: Lane) -> None:
        if position < len(bucket.line):
            heappush(self._lanes.setdefault(lane, []), (*bucket.line[position], position, bucket))

    def _lane(self, group: GroupState) -> Lane:
        return self._lane_of(self._round.order(group), group.fact.user_group)

    def _lane_of(self, order: float, user_group: int) -> Lane:
        return Lane(order, user_group if self._by_share else 0)

    def _move(self, lane: Lane) -> None:
        """Put a lane where it belongs by now, if that is further ahead, or if it had no place."""
        entry = self._current[lane] = self._entry(lane)
        heappush(self._order, entry)

    def _entry(self, lane: Lane) -> Entry:
        share = self._round.share(lane.user_group) if self._by_share else 0
        return lane.order, share, self._lanes[lane][0][:3], lane
