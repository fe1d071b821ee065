"""Runs of jobs: their states, and the bodies of the calls about them."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from pydantic import Field, ValidationInfo, field_validator

from mitosis.contracts.checked_model import Flag, Integer
from mitosis.contracts.http import AnswerBody, GraceSeconds, IdempotencyKey, RequestBody
from mitosis.contracts.identifiers import Name, PlainText
from mitosis.contracts.lifecycle import RunState, StepState, TaskState
from mitosis.contracts.queries import Query, WaitSeconds

MAX_LABELS = 100
MAX_RUN_NAME = 200


StopKind: TypeAlias = Literal["cancel", "timeout", "failures", "error"]
"""Why the rest of a run or step is cancelled: by a user, by its timeout, by its limit of failures, or because
its tasks could not be created."""


class StartRun(RequestBody):
    """Start a run of a stored job, or of a definition that is not stored: give one of both."""

    job: Annotated[str, Field(min_length=1, max_length=201)] | None = None
    """Id, ``NAME`` or ``USERGROUP/NAME`` of a stored job."""
    version: Annotated[Integer, Field(ge=1, le=2**31 - 1)] | None = None
    """Of the stored job; None: the last one."""
    definition: dict[str, Any] | None = Field(default=None, validate_default=True)
    group_name: Name | None = None
    """User group of a run of ``definition``; None: the caller's own. A stored job runs in its own."""
    parameters: dict[str, Any] = Field(default={})
    name: Annotated[PlainText, Field(min_length=1, max_length=MAX_RUN_NAME)] | None = None
    """Shown beside the run; need not be unique."""
    labels: Annotated[tuple[PlainText, ...], Field(max_length=MAX_LABELS)] = ()
    idempotency_key: IdempotencyKey | None = None
    """A second call of the user group with this key answers with the run of the first one."""

    @field_validator("definition")
    @classmethod
    def _one_of_both(
        cls, definition: dict[str, Any] | None, known: ValidationInfo
    ) -> dict[str, Any] | None:
        job, version = known.data.get("job"), known.data.get("version")
        if (definition is None) == (job is None):
            raise ValueError("give either job, the name of a stored one, or definition")
        if definition is not None and version is not None:
            raise ValueError("a version belongs to a stored job: leave it out")
        return definition


class CancelRun(RequestBody):
    """Cancel the unfinished tasks of a run, and start no further step but those that clean up."""

    reason: Annotated[str, Field(max_length=1000)] | None = None
    grace_seconds: GraceSeconds | None = None
    """From SIGTERM to SIGKILL of running tasks; None: the grace of their task group."""
    skip_cleanup: Flag = False
    """Also the steps that follow others ``always``: they are cancelled, or do not start."""


class RerunRun(RequestBody):
    """Start a new run of what has not succeeded in an ended one, and of what comes after it."""

    name: Annotated[PlainText, Field(min_length=1, max_length=MAX_RUN_NAME)] | None = None
    all_steps: Flag = False
    """Take over no step: run everything again."""
    idempotency_key: IdempotencyKey | None = None


class StepInfo(AnswerBody):
    """One step of a run. The counts are those of its tasks; all tasks = open + the three others."""

    name: str
    state: StepState
    layer: int
    """From 0; a step comes in the first layer after all steps before it."""
    after: dict[str, str]
    """Steps that come first, and what each has to come to."""
    executor: str
    group: str
    """Name in ``groups`` of the definition."""
    task_group_id: UUID | None = None
    """Where its tasks are, once it has started."""
    is_array: bool = False
    total: int | None = None
    """Tasks that it has when all are created; None: not known before it starts."""
    created: int = 0
    """Tasks that have been created."""
    open: int = 0
    """Of these, tasks that have not ended."""
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    """Also those whose predecessor in an elementwise array did not succeed."""
    stopped_by: StopKind | None = None
    reason: str | None = None
    """Why it has failed, was skipped or was cancelled, if its tasks do not say."""
    taken: int = 0
    """Of the succeeded tasks, those that a rerun has taken over while others of the array run again."""
    taken_from: UUID | None = None
    """The earlier run whose step and results, or some of its tasks, a rerun has taken over."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline: datetime | None = None
    """When its timeout cancels the rest."""


class RunInfo(AnswerBody):
    """One run, as in a list."""

    run_id: UUID
    name: str | None = None
    state: RunState
    revision: int
    """Grows with each change of the run, its steps or their counts."""
    job_id: UUID | None = None
    """None: of a definition that is not stored, or the job was deleted."""
    job_name: str
    version: int | None = None
    group_name: str
    created_by: str
    labels: tuple[str, ...] = ()
    rerun_of: UUID | None = None
    schedule: str | None = None
    """Name of the schedule that has started it; None: no schedule has, or it was deleted."""
    schedule_id: UUID | None = None
    nominal_time: datetime | None = None
    """The time of the schedule for which it runs; a rerun has that of the run before."""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline: datetime | None = None
    """When its timeout cancels the rest."""
    stopped_by: StopKind | None = None
    """Set from when the rest is being cancelled."""
    reason: str | None = None
    """Of the cancel, or what has failed it."""
    steps_total: int = 0
    steps_ended: int = 0
    tasks_created: int = 0
    tasks_open: int = 0
    tasks_succeeded: int = 0
    tasks_failed: int = 0
    tasks_cancelled: int = 0


class RunView(RunInfo):
    """One run with its parameters and steps; the steps in the order of their layers."""

    parameters: dict[str, Any]
    steps: list[StepInfo]
    replayed: bool | None = None
    """Of a call that starts: whether an earlier call with its idempotency key has started the run."""


class RunsQuery(Query):
    """Query of the list of runs, the newest first; a run must match every condition."""

    state: list[RunState] = Field(default=[])
    job: str | None = None
    """Name of the job."""
    group_name: str | None = None
    created_by: str | None = None
    """Username of who has started it. Runs of schedules count only with ``schedule``."""
    schedule: str | None = None
    """``USERGROUP/NAME`` of the schedule that has started it, or its name in ``group_name`` (default: the
    caller's)."""
    label: list[str] = Field(default=[])
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50


class RunQuery(Query):
    """Query of one run: wait for a condition, or answer at once."""

    wait_seconds: WaitSeconds = 0.0
    until: Literal["changed", "ended"] = "changed"
    """``changed``: its revision is above ``after_revision``; ``ended``: its state is final."""
    after_revision: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
    """The ``revision`` that the caller has; None: that of the time of the call."""


class StepTasksQuery(Query):
    """Query of the tasks of a step, by index."""

    state: TaskState | None = None
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class StepTask(AnswerBody):
    """One task of a step."""

    index: int
    """``task.index``, from 0 (S001-52)."""
    task_id: int
    task_group_id: UUID
    state: TaskState
    attempt: int
    result: Any = None
    """The value that it has returned; null where there is none."""
    kind: str | None = None
    message: str | None = None
    """Why it did not succeed."""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class RunDefinition(AnswerBody):
    """The definition that a run executes; it never changes."""

    digest: str
    definition: dict[str, Any]
