"""What a campaign over runs has left, for its judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.chaos.runs.plan import PlannedRun


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One row of a step, and the results of its tasks."""

    name: str
    state: str
    total: int | None
    created: int
    succeeded: int
    failed: int
    cancelled: int
    stopped_by: str | None
    results: Mapping[int, tuple[str, ...]]
    """Index -> states of its results: one."""
    kinds: tuple[str, ...] = ()
    """Kinds of the failures of its tasks."""

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.succeeded, self.failed, self.cancelled


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One row of a run with its steps."""

    plan: PlannedRun
    run_id: UUID
    state: str
    stopped_by: str | None
    reason: str | None
    steps: Mapping[str, StepFacts]


@dataclass(frozen=True, slots=True)
class Executed:
    """One execution of a task, in nanoseconds of one clock; ``ended`` None: it was killed."""

    run: int
    step: str
    index: int
    attempt: int
    started: int
    ended: int | None


@dataclass(frozen=True, slots=True)
class RunCampaignFacts:
    runs: tuple[RunFacts, ...]
    rows: int
    """Runs in the database: none was made twice."""
    executions: tuple[Executed, ...]
    leftovers: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """What must be gone; by place."""


def executed(text: str) -> tuple[Executed, ...]:
    """Read the records of :mod:`tests.chaos.runs.work`."""
    begun: dict[tuple[str, ...], list[list[int | None]]] = {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        kind, *who, at = line.split()
        times = begun.setdefault(tuple(who), [])
        if kind == "S":
            times.append([int(at), None])
        else:
            # The same attempt again, after its host was lost: ends in the order of their begins.
            next(one for one in times if one[1] is None)[1] = int(at)
    return tuple(
        Executed(int(run), step, int(index), int(attempt), started or 0, ended)
        for (run, step, index, attempt), times in begun.items()
        for started, ended in times
    )
