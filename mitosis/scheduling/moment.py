"""A snapshot at one time: its sets, corrected by what the clock alone has changed since they were put."""

from collections.abc import Iterator, Mapping, Sequence

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.binding import binding_mismatch
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import Capacity
from mitosis.scheduling.host_sets import NONE, Hosts, ordinals
from mitosis.scheduling.policy import HOUR
from mitosis.scheduling.sizes import Held
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import GroupState, HostState, Profile

FailureName = tuple[HostFailureKind, int | None]
"""A kind of failure, and the task group that it concerns; None: all."""


class Moment:
    """What holds at a time. It reads the snapshot and changes nothing in it."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot = snapshot
        self.policy = snapshot.policy
        self.sets = snapshot.sets
        self.now = now
        self.broken_promises: Mapping[int, int] = {}
        """Task group → hosts on the way that do not count for it. Set by the round."""
        self.starved = frozenset(self._starved())
        """Task groups that have had no host for ``starve_after``."""
        self.moved = self._moved()
        """Hosts that have been moved as often as C-36 allows."""
        self._retried = self._retried_hosts()
        self._aside: Sequence[GroupState] | None = None
        self._fitting: dict[tuple[str, Capacity], Hosts] = {}
        self._binding: dict[Profile, Hosts] = {}

    @property
    def aside(self) -> Sequence[GroupState]:
        """Task groups that wait outside of buckets: only the clock makes them wait, or they have starved."""
        if self._aside is None:
            self._aside = tuple(self._groups_aside())
        return self._aside

    def failed(self, kind: HostFailureKind, group: int | None) -> Hosts:
        """Return the hosts that a failure of this kind keeps from a task group, or from all (None)."""
        hosts = self.sets.get("failed", (kind, group))
        return hosts & ~self._retried.get((kind, group), NONE) if hosts else hosts

    def free(self, demand: Capacity) -> Hosts:
        """Return the hosts with so much that no lease takes."""
        return self._covering("free", demand)

    def able(self, demand: Capacity) -> Hosts:
        """Return the hosts that have so much in all."""
        return self._covering("capacity", demand)

    def bindable(self, profile: Profile) -> Hosts:
        """Return the hosts to whose cores the workers can be bound, or whose cores are not known."""
        found = self._binding.get(profile)
        if found is None:
            found = NONE
            for cores, hosts in self.sets.of_kind("cores").items():
                known = isinstance(cores, tuple)
                if not known or binding_mismatch(profile.workers, profile.binding, cores) is None:
                    found |= hosts
            self._binding[profile] = found
        return found

    def missing(self, state: GroupState) -> int:
        """Return how many leases a task group should get; zero or less: none."""
        return state.missing + self.broken_promises.get(state.fact.number, 0)

    def held(self, state: GroupState) -> Held:
        """Return the leases of a task group, without hosts on the way that do not count."""
        held = state.held
        promised = held.promised - self.broken_promises.get(state.fact.number, 0)
        return Held(held.live, held.coming, held.full, held.ending, promised)

    def moves(self, host: HostState) -> list[float]:
        """Return the times of the contested ends on a host in the last hour."""
        return [at for at in host.fact.moved_at if at > self.now - HOUR + ROUNDING_SECONDS]

    def _covering(self, kind: str, demand: Capacity) -> Hosts:
        found = self._fitting.get((kind, demand))
        if found is None:
            found = NONE
            for capacity, hosts in self.sets.of_kind(kind).items():
                if isinstance(capacity, Capacity) and capacity.covers(demand):
                    found |= hosts
            self._fitting[kind, demand] = found
        return found

    def _groups_aside(self) -> Iterator[GroupState]:
        groups = self.snapshot.groups
        for number in self.starved:
            if groups[number].fact.goes_on:
                yield groups[number]
        for number in self.broken_promises:
            group = groups[number]
            if group.bucket is None and group.fact.goes_on and self.missing(group) > 0:
                yield group

    def _starved(self) -> Iterator[int]:
        after = self.policy.starve_after_seconds
        if after is None:
            return
        for _, (number,) in self.snapshot.times.hostless.due(self.now - after):
            if self.snapshot.groups[number].missing > 0:
                yield number

    def _moved(self) -> Hosts:
        found = NONE
        for ordinal in ordinals(self.sets.get("moved")):
            if len(self.moves(self.snapshot.host_at(ordinal))) >= self.policy.moves_per_hour:
                found |= 1 << ordinal
        return found

    def _retried_hosts(self) -> dict[FailureName, Hosts]:
        """Return the hosts whose pause after a failure is over although the failure is still a fact."""
        retried: dict[FailureName, Hosts] = {}
        for _, (ordinal, _) in self.snapshot.times.retries.due(self.now):
            failures = self.snapshot.host_at(ordinal).fact.failures
            blocking = {
                failure.name
                for failure in failures
                if failure.blocks_until > self.now + ROUNDING_SECONDS
            }
            for failure in failures:
                if failure.name not in blocking:
                    retried[failure.name] = retried.get(failure.name, NONE) | 1 << ordinal
        return retried
