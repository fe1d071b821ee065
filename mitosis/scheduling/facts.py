"""What a decision knows about hosts, task groups and leases. Plain values, without behaviour of their own.

Hosts, task groups, user groups and leases are numbers, as in PostgreSQL (the number of a lease is its epoch).
Times are seconds on the clock of the decision.
"""

import math
from dataclasses import dataclass
from enum import Enum
from operator import add, sub
from typing import Literal, NamedTuple, TypeVar, dataclass_transform

from mitosis.contracts.allocation import CpuBinding
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.host_failures import HostFailure
from mitosis.scheduling.host_sets import NONE, Hosts

FOREVER = math.inf
"""A time that never comes."""
NEVER = -math.inf
"""A time before all others."""

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def fact(kind: type[T]) -> type[T]:
    """Make a class of values that never change; mypy refuses to assign to their fields.

    With ``frozen=True`` Python would refuse it as well, but takes twice as long to make each value.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(kind)


class Capacity(NamedTuple):
    """What a host has, or what one lease takes of it.

    A host has one slot, and every lease takes it: so leases are exclusive. The other three are counted in the
    same way, for hosts that serve several leases at once.
    """

    slots: int = 1
    cores: int = 0
    memory_bytes: int = 0
    devices: int = 0

    def covers(self, demand: "Capacity") -> bool:
        """Return whether there is at least so much of each."""
        return (
            self.slots >= demand.slots
            and self.cores >= demand.cores
            and self.memory_bytes >= demand.memory_bytes
            and self.devices >= demand.devices
        )

    def plus(self, other: "Capacity") -> "Capacity":
        """Return the sum of both."""
        return Capacity(*map(add, self, other))

    def minus(self, other: "Capacity") -> "Capacity":
        """Return the difference; negative where a host is given more than it has."""
        return Capacity(*map(sub, self, other))

    def least(self, other: "Capacity") -> "Capacity":
        """Return the lesser of each."""
        return Capacity(*map(min, self, other))


ONE_SLOT = Capacity()
"""All of a host, as long as leases are exclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a host failed at for one task group, if it still counts."""

    group: int
    group_name: str
    kind: HostFailureKind
    failures: int = 1
    """In a row."""
    reason: str
    next_at: float | None = None
    """When the host is tried again; None: no time ends it."""

    @property
    def blocks_until(self) -> float:
        """Until when the host is not offered because of it; ``NEVER`` if it does not keep the host away."""
        match self.kind:
            case HostFailureKind.SETUP_FAILED | HostFailureKind.SUSPECTED:
                return FOREVER
            case HostFailureKind.TASKS_FAILED:
                return NEVER
            case _:
                return NEVER if self.next_at is None else self.next_at

    @property
    def name(self) -> tuple[HostFailureKind, int | None]:
        """Return its kind and the task group it keeps the host from; None: from all."""
        of_all = self.kind is HostFailureKind.UNREACHABLE
        return self.kind, None if of_all else self.group

    def at(self, now: float) -> HostFailure:
        """Return it as seen at a time: whether it keeps the host away, and the sentence about it."""
        return HostFailure(
            group=self.group,
            group_name=self.group_name,
            kind=self.kind,
            failures=self.failures,
            reason=self.reason,
            tried_in_seconds=None if self.next_at is None else self.next_at - now,
        )


@dataclass(frozen=True, slots=True)
class Freed:
    """A lease on the host was ended for this task group, which has not been offered the host yet."""

    group: int
    at: float
    """When that lease ended."""


@fact
class Host:
    """A host and its agent."""

    number: int
    name: str
    capacity: Capacity = ONE_SLOT
    """All that it has, whether used or not."""
    cores: tuple[int, ...] | None = None
    """Core ids that its agent may use. None: the agent has never said hello."""
    tags: frozenset[str] = frozenset()
    """Only for texts: which task groups it may serve is in their ``members``."""
    serves: frozenset[int] = frozenset()
    """User groups in which it has a write role."""
    in_contact: bool = True
    """Not offline, and silent for less than ``suspect_after``."""
    last_contact_at: float | None = None
    """None: never."""
    draining: bool = False
    """It finishes what it runs and takes nothing new."""
    warm: frozenset[int] = frozenset()
    """Task groups whose environment is ready on it, with a lease or without (dormant)."""
    unclean: frozenset[int] = frozenset()
    """Task groups without a lease on it whose environment is unfinished or must be torn down first."""
    failures: tuple[Failure, ...] = ()
    """What it failed at for task groups, with its present incarnation and their present hooks."""
    moved_at: tuple[float, ...] = ()
    """Contested ends of leases on it, at least those of the last hour, oldest first."""
    freed_for: tuple[Freed, ...] = ()
    """Oldest first. It is offered to these first."""
    debt: str | None = None
    """For texts: why a teardown that it owes cannot begin."""


@fact
class Group:
    """A task group as its users defined it."""

    number: int
    name: str
    user_group: int
    user_group_name: str = ""
    priority: int = 0
    """The greater goes first."""
    created_at: float = 0.0
    goes_on: bool = True
    """OPEN or CLOSED, and not being cancelled."""
    refuses_tasks: bool = False
    """CLOSED, and a submit does not reopen it. For texts."""
    assignment_method: Literal["tag_matched", "user_specified"] = "tag_matched"
    """For texts, like the tags."""
    tags: frozenset[str] = frozenset()
    tag_match: Literal["all", "any"] = "all"
    members: Hosts = NONE
    """Hosts that may serve it by C-32: as of the last refresh, plus those added, minus those removed. Made by
    ``Snapshot.host_set``. Task groups with equal sets are examined together, so that many may wait."""
    removed: Hosts = NONE
    """Hosts that a user removed, for texts. None of them is in ``members``."""
    demand: Capacity = ONE_SLOT
    """What one lease takes of a host."""
    workers: int = 1
    """Workers per host: tasks that a lease runs at once."""
    binding: CpuBinding | None = None
    """How the workers are bound to cores; None fits every host."""
    max_managers: int | None = None
    """Leases it may have at once, in all states but ENDED."""
    leases: LeaseTerms | None = None
    """None: the settings of the deployment."""


@fact
class Work:
    """The tasks of a task group, and what has been measured. It changes all the time."""

    ready: int = 0
    """Tasks that can be claimed now. A count up to what all hosts could take is enough."""
    more_ready: bool = False
    """Only so many ready tasks were counted: there may be more of them."""
    unfinished: int = 0
    """Tasks without a result, running ones included."""
    delayed_until: float | None = None
    """When the first delayed attempt is due, if any."""
    hostless_since: float | None = None
    """Since when it has had claimable work and neither a lease nor a host on the way. None: unknown, or it
    has a host."""
    tasks_measured: int = 0
    """Tasks that ended and were measured."""
    task_seconds: float = 0.0
    """Their mean duration."""
    setup_seconds: float = 0.0
    """Mean duration of its setup over hosts; 0 if none was measured."""
    teardown_seconds: float = 0.0

    @property
    def to_do(self) -> int:
        """Return the tasks that must pay for hosts: the unfinished where not all ready ones were counted."""
        return max(self.ready, self.unfinished) if self.more_ready else self.ready


class Progress(Enum):
    """What a lease contributes to the work that is ready (P7, P9)."""

    STARTING = "starting"
    """Offered, or in a setup that is within its time. It will claim ready tasks."""
    ROOM = "room"
    """Set up, with idle workers: it claims ready tasks at once."""
    FULL = "full"
    """It works, and all workers have tasks: ready tasks are beyond it."""
    STUCK = "stuck"
    """Out of contact, suspected, or without progress. It counts for ``max_managers`` only."""


@fact
class Lease:
    """A lease that has not ended."""

    number: int
    group: int
    host: int
    state: LeaseState = LeaseState.ACTIVE
    """OFFERED, ACTIVE or ENDING."""
    progress: Progress = Progress.FULL
    """Of no meaning while it is ENDING."""
    taken_at: float = 0.0
    """When it was offered, until it is taken."""
    affinity_until: float = FOREVER
    """From then on it may be taken by task groups that go first."""
    renewed: bool = False
    """Its first affinity has passed: a task group that goes first and has no host may take it at any time."""
    idle_since: float | None = None
    """Since then nothing was claimable for it, nothing ran on it and nothing was prefetched (C-04). None: it
    has work, or its setup is not over."""
    for_group: int | None = None
    """While it is ENDING: the task group that gets the host."""
    ending_since: float = 0.0
    """While it is ENDING."""

    @property
    def is_live(self) -> bool:
        """Whether it is a lease that claims, or will."""
        return self.state is not LeaseState.ENDING

    @property
    def contestable(self) -> bool:
        """Whether it can be ended for another task group: it is taken and its setup is over."""
        return self.state is LeaseState.ACTIVE and self.progress is not Progress.STARTING
