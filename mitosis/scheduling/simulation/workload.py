"""What a simulation is given: hosts and their absences, task groups, and tasks with their durations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from operator import mul
from random import Random
from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0)]


class WorkloadRecord(
    msgspec.Struct, tag_field="kind", tag="workload", forbid_unknown_fields=True, frozen=True
):
    """The first line of a file."""

    until: Seconds
    """End of the simulation."""
    failing_setups: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of (host, task group) pairs on which setup fails."""


class HostRecord(
    msgspec.Struct, tag_field="kind", tag="host", forbid_unknown_fields=True, frozen=True
):
    """One host."""

    name: str
    user_groups: list[str]
    """Those in which it has a write role."""
    factor: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Setups and teardowns take so many times as long as those of the task group."""


class AwayRecord(
    msgspec.Struct, tag_field="kind", tag="away", forbid_unknown_fields=True, frozen=True
):
    """A time without contact."""

    host: str
    at: Seconds
    until: Seconds


class DrainRecord(
    msgspec.Struct, tag_field="kind", tag="drain", forbid_unknown_fields=True, frozen=True
):
    """A time in which a host takes nothing new."""

    host: str
    at: Seconds
    until: Seconds


class GroupRecord(
    msgspec.Struct, tag_field="kind", tag="group", forbid_unknown_fields=True, frozen=True
):
    """One task group."""

    name: str
    user_group: str
    at: Seconds
    """When it was created."""
    closed_at: Seconds | None = None
    """None: with its last tasks."""
    priority: int = 0
    workers: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    hosts: list[str] | None = None
    """Its members; None: all hosts."""
    max_managers: Annotated[int, msgspec.Meta(ge=0)] | None = None
    setup_seconds: Seconds = 0.0
    """On a host with factor 1."""
    teardown_seconds: Seconds = 0.0


class TasksRecord(
    msgspec.Struct, tag_field="kind", tag="tasks", forbid_unknown_fields=True, frozen=True
):
    """Tasks submitted together: their durations, or their number and mean duration."""

    group: str
    at: Seconds
    seconds: list[Seconds] = []
    count: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    mean_seconds: Seconds = 0.0

    @property
    def size(self) -> int:
        """Number of tasks."""
        return len(self.seconds) or self.count


Record = HostRecord | AwayRecord | DrainRecord | GroupRecord | TasksRecord


@dataclass(slots=True)
class Workload:
    """All that happens under every policy."""

    until: Seconds
    """End of the simulation."""
    hosts: Sequence[HostRecord] = field(default_factory=list)
    groups: Sequence[GroupRecord] = field(default_factory=list)
    tasks: Sequence[TasksRecord] = field(default_factory=list)
    away: Sequence[AwayRecord] = field(default_factory=list)
    drains: Sequence[DrainRecord] = field(default_factory=list)
    failing_setups: float = 0.0
    """Share of (host, task group) pairs on which setup fails."""

    def records(self) -> Iterator[Record]:
        """Yield everything, what is referred to first."""
        yield from self.hosts
        yield from self.groups
        yield from self.tasks
        yield from self.away
        yield from self.drains


def durations(tasks: TasksRecord, first: int) -> Iterator[Seconds]:
    """Yield the durations of tasks; those of a mean vary around it, 1 % are eight times as long.

    Args:
        tasks: submitted together.
        first: where in the fixed series of variations to begin, so that it is the same for every policy.
    """
    if tasks.seconds:
        return iter(tasks.seconds)
    first %= len(_VARIATION)
    varied = islice(cycle(_VARIATION), first, first + tasks.count)
    return map(partial(mul, tasks.mean_seconds), varied)


def _variations() -> Sequence[float]:
    random = Random(7)  # noqa: S311 - a simulation
    drawn = [random.lognormvariate(0.0, 0.5) * (8 if n % 100 == 0 else 1) for n in range(4_093)]
    mean = sum(drawn) / len(drawn)
    return [value / mean for value in drawn]


_VARIATION = _variations()
