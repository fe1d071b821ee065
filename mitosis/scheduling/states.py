"""What a snapshot keeps for each host and task group beside the facts: what follows from their leases."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mitosis.contracts.allocation import CpuBinding
from mitosis.scheduling.facts import Capacity, Group, Host, Work
from mitosis.scheduling.host_sets import Hosts
from mitosis.scheduling.policy import Order, Policy
from mitosis.scheduling.sizes import Held


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What a task group needs of a host besides membership. A snapshot has one of each; few are different."""

    user_group: int
    demand: Capacity
    workers: int
    """0 without a binding: then their number makes no difference."""
    binding: CpuBinding | None


class Key(NamedTuple):
    """The place of a waiting task group within its bucket."""

    leases: int
    created_at: float
    number: int


@dataclass(slots=True, eq=False)
class Bucket:
    """The waiting task groups of equal priority that may use the same hosts, best first."""

    members: Hosts
    profile: Profile
    priority: int
    line: list[Key] = field(default_factory=list)
    setups: list[float] = field(default_factory=list)
    """The durations of their setups, shortest first."""


@dataclass(slots=True)
class HostState:
    """A host and what follows from its leases."""

    ordinal: int
    fact: Host
    free: Capacity
    leases: set[int] = field(default_factory=set)
    """Numbers of its leases, those that are ENDING included."""

    def copy(self) -> "HostState":
        """Return the same state, to be changed independently."""
        return HostState(self.ordinal, self.fact, self.free, self.leases.copy())


@dataclass(slots=True)
class GroupState:
    """A task group and what follows from its leases."""

    fact: Group
    profile: Profile
    work: Work = field(default_factory=Work)
    held: Held = field(default_factory=Held)
    leases: set[int] = field(default_factory=set)
    missing: int = 0
    """Leases to add, as far as no clock is concerned."""
    bucket: Bucket | None = None
    """The one in which it waits."""
    key: Key | None = None
    waits_for_setup: float | None = None
    """How long its setup takes, while it waits."""

    def copy(self, bucket: Bucket | None) -> "GroupState":
        """Return the same state, to be changed independently; ``bucket``: the one in which it waits."""
        return replace(self, held=replace(self.held), leases=self.leases.copy(), bucket=bucket)


def bucket_of_one(state: GroupState) -> Bucket:
    """Return a bucket for one task group that waits in no other, or in another place than there."""
    group, setups = state.fact, [state.work.setup_seconds]
    return Bucket(group.members, state.profile, group.priority, setups=setups)


def line_key(state: GroupState, policy: Policy) -> Key:
    """Return the place of a task group among those of its bucket."""
    leases = state.held.live + state.held.promised if policy.order is Order.SHARE else 0
    return Key(leases, state.fact.created_at, state.fact.number)
