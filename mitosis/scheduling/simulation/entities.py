"""The state of each host, task group and lease of a simulation. It is the truth; the snapshot is a copy."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.facts import FOREVER, Failure, Freed, Progress
from mitosis.scheduling.host_sets import NONE, Hosts
from mitosis.scheduling.simulation.workload import GroupRecord, HostRecord, TasksRecord

MEASURED_TASKS = 5
"""A mean duration is put for the first time when so many tasks have ended."""


@dataclass(slots=True, eq=False)
class SimHost:
    """A host."""

    number: int
    bit: Hosts
    record: HostRecord
    serves: frozenset[int]
    run: "Run | None" = None
    """Its lease, also one that is ending."""
    in_contact: bool = True
    away: bool = False
    """Silent, whether or not that has been noticed. It claims nothing."""
    absences: int = 0
    """Begun so far, to know a later one from this one."""
    lost: bool = False
    draining: bool = False
    warm: set[int] = field(default_factory=set)
    """Task groups whose environment is ready."""
    unclean: set[int] = field(default_factory=set)
    """Task groups whose environment is torn down now."""
    failures: dict[int, Failure] = field(default_factory=dict)
    """By task group."""
    moved_at: list[float] = field(default_factory=list)
    freed_for: list[Freed] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        """Whether it could take an offer at once."""
        return self.run is None and not self.unclean and self.in_contact and not self.draining


@dataclass(slots=True, eq=False)
class SimGroup:
    """A task group."""

    number: int
    record: GroupRecord
    user_group: int
    members: Hosts
    workers: int
    batches: deque[TasksRecord]
    """Still to be submitted, earliest first."""
    with_role: Hosts
    """Hosts that have a write role in its user group."""
    failed_on: Hosts = NONE
    """Hosts on which its setup failed."""
    runs: set["Run"] = field(default_factory=set)
    """Leases, those that are ending included."""
    ready: int = 0
    unfinished: int = 0
    submitted: int = 0
    ended: int = 0
    task_seconds: float = 0.0
    """Sum over the ended tasks."""
    setups: int = 0
    setup_seconds: float = 0.0
    """Sum over the setups so far; so for teardowns."""
    teardowns: int = 0
    teardown_seconds: float = 0.0
    parts: deque[Iterator[float]] = field(default_factory=deque)
    """Durations of the ready tasks."""
    is_closed: bool = False
    is_settled: bool = False
    cleaning: int = 0
    """Hosts that tear its environment down."""
    is_watched: bool = False
    """It waits for a host, so every change of its ready tasks counts."""
    measured_at: float = MEASURED_TASKS
    """When so many tasks have ended, their mean duration is put again."""
    hostless_since: float | None = None
    """Since then it has had ready tasks and neither a lease nor a host on the way."""
    leaseless_since: float | None = None
    """Since then it has had ready tasks and no lease."""
    first_ready_at: float | None = None
    first_offer_at: float | None = None
    settled_at: float | None = None

    @property
    def usable(self) -> Hosts:
        """Hosts that may serve it, were they free and in contact."""
        return self.members & self.with_role & ~self.failed_on

    def next_seconds(self) -> float:
        """Return the duration of the next ready task."""
        while True:
            seconds = next(self.parts[0], None)
            if seconds is not None:
                return seconds
            self.parts.popleft()

    @property
    def mean_seconds(self) -> float:
        """Mean duration of the ended tasks."""
        return self.task_seconds / self.ended if self.ended else 0.0


@dataclass(slots=True, eq=False)
class Run:
    """A lease."""

    number: int
    group: SimGroup
    host: SimHost
    taken_at: float
    affinity_until: float
    workers: int
    state: LeaseState = LeaseState.ACTIVE
    is_prepared: bool = False
    """Its setup is over."""
    is_gone: bool = False
    """It ended, or its host is lost: its events count no more."""
    renewed: bool = False
    running: int = 0
    idle_since: float | None = None
    for_group: int | None = None
    ending_since: float = 0.0
    noted: tuple[Progress, float | None] | None = None
    """Its progress and since when it is idle, when its last change was noted."""
    ended_at: float = FOREVER
    drain_from: list[float] = field(default_factory=list)
    """When each of its workers became idle after the end of the lease."""

    @property
    def claims(self) -> bool:
        """Whether it begins tasks."""
        return self.state is LeaseState.ACTIVE and self.is_prepared and not self.host.away

    @property
    def progress(self) -> Progress:
        """What the lease contributes to the ready work."""
        if not self.host.in_contact:
            return Progress.STUCK
        if not self.is_prepared:
            return Progress.STARTING
        return Progress.FULL if self.running >= self.workers else Progress.ROOM
