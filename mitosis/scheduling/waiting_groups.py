"""The task groups that wait for hosts: in the order in which they are served, and what all of a kind share.

Kept one change at a time, so that a decision reads what most task groups have in common once, not for each.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from mitosis.scheduling.host_sets import NONE, Hosts
from mitosis.scheduling.policy import Order, Policy
from mitosis.scheduling.states import Bucket, GroupState, Profile, line_key


class WaitingKind:
    """The waiting task groups of one priority and profile; they stand in a bucket for each set of members."""

    def __init__(self, priority: int, profile: Profile) -> None:
        self.priority = priority
        self.profile = profile
        self.buckets: dict[Hosts, Bucket] = {}
        """By their members."""
        self._members: Hosts | None = NONE

    def copy(self) -> "WaitingKind":
        """Return the same buckets, to be changed independently."""
        copied = WaitingKind(self.priority, self.profile)
        for members, bucket in self.buckets.items():
            made = copied.bucket(members)
            made.line, made.setups = bucket.line.copy(), bucket.setups.copy()
        copied._members = self._members
        return copied

    @property
    def members(self) -> Hosts:
        """Hosts that are members of some of them."""
        if self._members is None:
            found = NONE
            for members in self.buckets:
                found |= members
            self._members = found
        return self._members

    @property
    def some(self) -> Bucket:
        """Return one of the buckets."""
        return next(iter(self.buckets.values()))

    def bucket(self, members: Hosts) -> Bucket:
        """Return the bucket of these members, which is made if there is none."""
        found = self.buckets.get(members)
        if found is None:
            found = self.buckets[members] = Bucket(members, self.profile, self.priority)
            if self._members is not None:
                self._members |= members
        return found

    def drop(self, bucket: Bucket) -> None:
        """Forget a bucket that has become empty."""
        del self.buckets[bucket.members]
        self._members = None


class WaitingGroups:
    """All task groups that wait."""

    def __init__(self, policy: Policy) -> None:
        self.kinds: dict[tuple[int, Profile], WaitingKind] = {}
        """By priority and profile; none is empty."""
        self.setups: list[float] = []
        """The different durations of their setups, shortest first."""
        self._policy = policy
        self._with_setup: dict[float, int] = {}

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def copy(self) -> "WaitingGroups":
        """Return the same lines, to be changed independently; the states still have the buckets of these."""
        copied = WaitingGroups(self._policy)
        copied.kinds = {name: kind.copy() for name, kind in self.kinds.items()}
        copied.setups = self.setups.copy()
        copied._with_setup = self._with_setup.copy()
        return copied

    def bucket_of(self, state: GroupState) -> Bucket | None:
        """Return the bucket in which a task group waits, also if its state has that of a copy."""
        there = state.bucket
        if there is None:
            return None
        return self.kinds[there.priority, there.profile].buckets[there.members]

    def buckets(self) -> Iterator[Bucket]:
        """Yield all buckets."""
        for kind in self.kinds.values():
            yield from kind.buckets.values()

    def put(self, state: GroupState) -> None:
        """Put a task group where it belongs."""
        key = line_key(state, self._policy)
        priority = 0 if self._policy.order is Order.AGE else state.fact.priority
        members, bucket = state.fact.members, state.bucket
        setup = state.work.setup_seconds
        if (
            bucket is None
            or state.key != key
            or bucket.profile is not state.profile
            or bucket.priority != priority
            or bucket.members != members
        ):
            self.leave(state)
            name = (priority, state.profile)
            kind = self.kinds.get(name)
            if kind is None:
                kind = self.kinds[name] = WaitingKind(*name)
            bucket = kind.bucket(members)
            insort(bucket.line, key)
            state.bucket, state.key = bucket, key
        if state.waits_for_setup != setup:
            self._count_setup(state, bucket, setup)

    def leave(self, state: GroupState) -> None:
        """Let a task group wait no more."""
        bucket, key = state.bucket, state.key
        if bucket is None or key is None:
            return
        state.bucket = state.key = None
        self._count_setup(state, bucket, None)
        del bucket.line[bisect_left(bucket.line, key)]
        if not bucket.line:
            name = (bucket.priority, bucket.profile)
            kind = self.kinds[name]
            kind.drop(bucket)
            if not kind.buckets:
                del self.kinds[name]

    def _count_setup(self, state: GroupState, bucket: Bucket, setup: float | None) -> None:
        """Count the setup of a waiting task group instead of what it was before; None: it waits no more."""
        counts, former = self._with_setup, state.waits_for_setup
        state.waits_for_setup = setup
        if setup is not None:
            insort(bucket.setups, setup)
            counts[setup] = counts.get(setup, 0) + 1
            if counts[setup] == 1:
                insort(self.setups, setup)
        if former is not None:
            del bucket.setups[bisect_left(bucket.setups, former)]
            counts[former] -= 1
            if not counts[former]:
                del counts[former]
                del self.setups[bisect_left(self.setups, former)]
