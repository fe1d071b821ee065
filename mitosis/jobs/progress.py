"""How far the steps of a run have come: how each ends, which limits are reached, and how the run ends.

Pure: decided from the definition, the counts of the tasks of each step, and why the rest is being cancelled.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mitosis.contracts.lifecycle import STEP, RunState, StepState
from mitosis.contracts.runs import StopKind
from mitosis.jobs.definition import JobDefinition, Step
from mitosis.jobs.fields import Outcome, allowed_failures
from mitosis.jobs.order import RunEnd, StepEnd, run_end

MOST_REASON = 2_000
_ENDS: Mapping[StepState, StepEnd] = {
    StepState.SUCCEEDED: StepEnd.SUCCEEDED,
    StepState.FAILED: StepEnd.FAILED,
    StepState.SKIPPED: StepEnd.SKIPPED,
    StepState.CANCELLED: StepEnd.CANCELLED,
}
_RESULTS: Mapping[RunEnd, RunState] = {
    RunEnd.SUCCESS: RunState.SUCCESS,
    RunEnd.FAILED: RunState.FAILED,
    RunEnd.CANCELLED: RunState.CANCELLED,
}


@dataclass(slots=True, kw_only=True)
class StepProgress:
    """One step of a run. Changed in place while what follows is decided."""

    id: int
    name: str
    state: StepState
    task_group: UUID | None = None
    total: int | None = None
    created: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    stopped_by: StopKind | None = None
    """``cancel``: with the rest of the run."""
    reason: str | None = None
    source: int = 0
    """The step of an earlier run that has its tasks; 0: it has them itself."""
    reuses: int = 0
    """The step of an earlier run whose succeeded tasks are not created again; 0: none."""
    taken: int = 0
    """Tasks of that step among its own."""
    deadline: datetime | None = None
    overdue: bool = False

    @property
    def ended(self) -> bool:
        return self.state in STEP.terminal

    @property
    def open(self) -> int:
        """Tasks that have not ended."""
        return self.created - self.succeeded - self.failed - self.cancelled

    @property
    def creating(self) -> bool:
        """Whether tasks of it are still to be created."""
        return (
            self.state is StepState.RUNNING
            and self.stopped_by is None
            and self.created < (self.total or 0)
        )

    def end(self, state: StepState, reason: str | None = None) -> None:
        """End it."""
        self.state, self.reason = state, self.reason or storable(reason)

    def stop(self, kind: StopKind, reason: str | None) -> None:
        """Have the rest of it cancelled, unless that is so already."""
        if self.stopped_by is None:
            self.stopped_by, self.reason = kind, storable(reason)


def storable(reason: str | None) -> str | None:
    """Return a reason as PostgreSQL can store it: without NUL characters, and not too long."""
    return None if reason is None else reason.replace("\0", "\N{SYMBOL FOR NULL}")[:MOST_REASON]


def end_of(step: StepProgress) -> StepState | None:
    """Return how a running step has ended; None if it has not.

    A step that has not succeeded has failed, also if a user has cancelled a task of it; only with the rest of
    its run it is cancelled.
    """
    if step.state is not StepState.RUNNING or step.open or step.creating:
        return None
    complete = step.created == step.total
    if step.stopped_by in {None, "cancel"} and complete and step.succeeded == step.total:
        return StepState.SUCCEEDED
    if step.stopped_by == "cancel" and (step.cancelled or not complete):
        return StepState.CANCELLED
    return StepState.FAILED


def too_many_failures(definition: JobDefinition, step: StepProgress) -> str | None:
    """Return why the rest of a running step is cancelled by its limit of failures."""
    if step.state is not StepState.RUNNING:
        return None
    limit = definition.steps[step.name].max_failures
    allowed = allowed_failures(limit, step.total or 0)
    if allowed is None or step.failed <= allowed:
        return None
    return f"{step.failed} of its tasks have failed, and max_failures is {limit}"


def too_many_failures_of_run(
    definition: JobDefinition, steps: Iterable[StepProgress]
) -> str | None:
    """Return why the rest of a run is cancelled by its limit; a share is of the tasks of started steps."""
    started = [step for step in steps if step.total is not None and not step.source]
    failed = sum(step.failed for step in started)
    allowed = allowed_failures(definition.max_failures, sum(step.total or 0 for step in started))
    if allowed is None or failed <= allowed:
        return None
    return f"{failed} tasks have failed, and max_failures is {definition.max_failures}"


def cleans_up(step: Step) -> bool:
    """Return whether a step starts also when the run is cancelled: it follows others ``always``."""
    return bool(step.after) and all(one is Outcome.ALWAYS for one in step.after.values())


def ends(steps: Iterable[StepProgress]) -> dict[str, StepEnd]:
    """Return how steps have ended."""
    return {step.name: _ENDS[step.state] for step in steps if step.ended}


def result_of(
    definition: JobDefinition, steps: Sequence[StepProgress], stopped_by: StopKind | None
) -> RunState | None:
    """Return what a run has come to; None while a step has not ended."""
    found = ends(steps)
    result = run_end(definition, found)
    if result is None:
        return None
    if stopped_by in {"timeout", "failures", "error"}:
        return RunState.FAILED
    if stopped_by == "cancel" and StepEnd.CANCELLED in found.values():
        return RunState.CANCELLED
    return _RESULTS[result]


def room(definition: JobDefinition, steps: Iterable[StepProgress]) -> int | None:
    """Return how many more tasks of the run may be open; None: any number."""
    most = definition.max_concurrent_tasks
    return None if most is None else max(most - sum(step.open for step in steps), 0)


def may_create(
    definition: JobDefinition, step: StepProgress, steps: Mapping[str, StepProgress]
) -> int:
    """Return how many more tasks of a step may be created: no more than of those it follows one by one."""
    if not step.creating:
        return 0
    before = [steps[name].created for name in definition.steps[step.name].each_of]
    return max(min([step.total or 0, *before]) - step.created, 0)


def never_complete(
    definition: JobDefinition, step: StepProgress, steps: Mapping[str, StepProgress]
) -> str | None:
    """Return why the other tasks of a step are never created: a step that it follows one by one has ended."""
    if not step.creating or may_create(definition, step, steps):
        return None
    before = [steps[name] for name in definition.steps[step.name].each_of]
    return next(
        (f"{one.name} has ended before all its tasks were created" for one in before if one.ended),
        None,
    )
