"""A mixed workload from a seed: task groups of all sizes, bursts, streams, lost and drained hosts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from mitosis.scheduling.policy import HOUR, MINUTE
from mitosis.scheduling.simulation.workload import (
    AwayRecord,
    DrainRecord,
    GroupRecord,
    HostRecord,
    TasksRecord,
    Workload,
)

DAY = 24 * HOUR
USER_GROUPS = 8
TAGS = 8
PRIORITIES = (-10, 0, 10)
PRIORITY_WEIGHTS = (20, 65, 15)
WORKERS = (1, 4, 8)
SIZE_SPREAD = 1.0
LARGEST = 25.0
"""Times the median size of task groups."""
BURST_SHARE = 0.1
FAILING_SETUPS = 0.01
QUIET_END = 0.05
"""Share of the time, at the end, in which no task group comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The size of a mixed workload. The same mix always gives the same workload."""

    hosts: int = 100
    days: float = 4.0
    load: float = 0.65
    """Work that comes, as a share of the time of all hosts."""
    seed: int = 1
    size_hours: float = 8.0
    """Median work of a task group, in hours of one host."""


def mixed(mix: Mix) -> Workload:
    """Return a workload."""
    return _Maker(mix).made()


@dataclass(slots=True)
class _Maker:
    mix: Mix
    random: Random = field(init=False)
    until: float = field(init=False)
    tags: list[list[str]] = field(default_factory=list)
    """The hosts with each tag."""

    def __post_init__(self) -> None:
        self.random = Random(self.mix.seed)  # noqa: S311 - a simulation
        self.until = self.mix.days * DAY

    def made(self) -> Workload:
        hosts = [self._host(number) for number in range(self.mix.hosts)]
        names = [host.name for host in hosts]
        self.tags = [
            [name for name in names if self.random.random() < 0.3] or names for _ in range(TAGS)
        ]
        made = Workload(until=self.until, hosts=hosts, failing_setups=FAILING_SETUPS)
        groups: list[GroupRecord] = []
        tasks: list[TasksRecord] = []
        for number, at in enumerate(self._arrivals()):
            group, batches = self._group(number, at, names)
            groups.append(group)
            tasks += batches
        made.groups, made.tasks = groups, tasks
        made.away = [AwayRecord(*time) for time in self._times(names, 10 * DAY, self._absence)]
        made.drains = [
            DrainRecord(*time) for time in self._times(names, 20 * DAY, lambda: 2 * HOUR)
        ]
        return made

    def _host(self, number: int) -> HostRecord:
        groups = [f"team-{of}" for of in range(USER_GROUPS) if self.random.random() < 0.9]
        factor = self.random.lognormvariate(0.0, 0.3)
        return HostRecord(name=f"h{number}", user_groups=groups or ["team-0"], factor=factor)

    def _arrivals(self) -> Iterator[float]:
        """Yield the times at which task groups come, single ones and in bursts of 6 to 20."""
        random, drawn = self.random, Random(1)  # noqa: S311 - a simulation
        sizes = [self._size(drawn) for _ in range(10_000)]
        per_event = (1 - BURST_SHARE) + BURST_SHARE * 13
        per_hour = self.mix.load * self.mix.hosts / (sum(sizes) / len(sizes)) / per_event
        at = 0.0
        while (at := at + random.expovariate(per_hour) * HOUR) < self.until * (1 - QUIET_END):
            burst = random.randint(6, 20) if random.random() < BURST_SHARE else 1
            for _ in range(burst):
                yield at + random.random() * MINUTE

    def _group(
        self, number: int, at: float, names: list[str]
    ) -> tuple[GroupRecord, list[TasksRecord]]:
        random = self.random
        workers = random.choice(WORKERS)
        mean = min(max(random.lognormvariate(0.0, 1.0) * 20 * MINUTE, 20.0), 6 * HOUR)
        count = max(1, round(self._size(random) * HOUR * workers / mean))
        name = f"g{number}"
        batches = self._batches(name, at, count, mean)
        record = GroupRecord(
            name=name,
            user_group=f"team-{self._zipf()}",
            at=at,
            priority=random.choices(PRIORITIES, PRIORITY_WEIGHTS)[0],
            workers=workers,
            hosts=self._members(names),
            max_managers=random.randint(1, 5) if random.random() < 0.15 else None,
            setup_seconds=random.lognormvariate(0.0, 1.2) * 90,
            teardown_seconds=random.lognormvariate(0.0, 1.0) * 20,
        )
        return record, batches

    def _zipf(self) -> int:
        weights = [1 / rank for rank in range(1, USER_GROUPS + 1)]
        return self.random.choices(range(USER_GROUPS), weights)[0]

    def _members(self, names: list[str]) -> list[str] | None:
        drawn = self.random.random()
        if drawn < 0.5:
            return None
        if drawn < 0.85:
            return self.random.choice(self.tags)
        return self.random.sample(names, min(len(names), self.random.randint(5, 20)))

    def _batches(self, name: str, at: float, count: int, mean: float) -> list[TasksRecord]:
        """Return the tasks: mostly at once, or in many parts with pauses, or in two with a long pause."""
        random = self.random
        drawn = random.random()
        parts = random.randint(4, 12) if drawn < 0.15 else 2 if drawn < 0.18 else 1
        pause = HOUR if parts > 2 else 12 * HOUR
        found = []
        for part in range(parts):
            of = count * (part + 1) // parts - count * part // parts
            if of and at < self.until:
                found.append(TasksRecord(group=name, at=at, count=of, mean_seconds=mean))
            at += random.expovariate(1 / pause)
        return found

    def _absence(self) -> float:
        """Return how long a host is away: most come back before they are lost."""
        median = MINUTE if self.random.random() < 0.7 else HOUR
        return self.random.lognormvariate(0.0, 1.0) * median

    def _times(
        self, names: list[str], every: float, length: Callable[[], float]
    ) -> Iterator[tuple[str, float, float]]:
        for name in names:
            at = 0.0
            while (at := at + self.random.expovariate(1 / every)) < self.until:
                until = at + length()
                yield name, at, until
                at = until

    def _size(self, random: Random) -> float:
        """Return the size of a task group in hours of one host."""
        return min(random.lognormvariate(0.0, SIZE_SPREAD), LARGEST) * self.mix.size_hours
