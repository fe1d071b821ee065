"""Bodies of the calls that cancel single tasks."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints, ValidationInfo, field_validator

from mitosis.contracts.checked_model import Flag, Integer
from mitosis.contracts.http import After, AnswerBody, GraceSeconds, Int32, RequestBody
from mitosis.contracts.lifecycle import TaskState

MAX_CANCELLED_TASKS = 10_000
TaskNumber = Annotated[Integer, Field(ge=1, le=2**63 - 1)]
Reason = Annotated[str, StringConstraints(max_length=1000)]
UnfinishedState = Literal["ready", "delayed", "blocked", "running"]


class TaskFilter(RequestBody):
    """The unfinished tasks of a group that have all of these; without any field, all of them."""

    states: Annotated[tuple[UnfinishedState, ...], Field(min_length=1)] = (
        "ready",
        "delayed",
        "blocked",
        "running",
    )
    """A claimed task that is not known to run counts as ready."""
    labels: tuple[str, ...] = ()
    """Only tasks with all of these labels."""
    min_priority: Int32 | None = None
    max_priority: Int32 | None = None
    """Not below ``min_priority``."""
    submitted_after: AwareDatetime | None = None
    submitted_before: AwareDatetime | None = None

    @field_validator("max_priority")
    @classmethod
    def _is_a_range(cls, most: int | None, known: ValidationInfo) -> int | None:
        least = known.data.get("min_priority")
        if most is not None and least is not None and most < least:
            raise ValueError(f"no priority is between {least} and {most}; exchange them")
        return most


class CancelTasks(RequestBody):
    """Cancel single tasks: give either ``task_ids`` or ``filter``."""

    task_ids: (
        Annotated[tuple[TaskNumber, ...], Field(min_length=1, max_length=MAX_CANCELLED_TASKS)]
        | None
    ) = None
    filter: TaskFilter | None = Field(default=None, validate_default=True)
    """Comes in parts: ``after`` is ``next`` of the previous answer, until None."""
    after: After = 0
    reason: Reason | None = None
    grace_seconds: GraceSeconds | None = None
    """From SIGTERM to SIGKILL of the tasks that run; None: the grace of the task group."""
    dry_run: Flag = False
    """Count, and cancel nothing."""

    @field_validator("filter")
    @classmethod
    def _one_of_both(cls, which: TaskFilter | None, known: ValidationInfo) -> TaskFilter | None:
        if (which is None) == (known.data.get("task_ids") is None):
            raise ValueError(
                "give either task_ids or filter; an empty filter is every unfinished task"
            )
        return which


class CancelTask(RequestBody):
    """How one task is cancelled."""

    reason: Reason | None = None
    grace_seconds: GraceSeconds | None = None


class CancelOutcome(StrEnum):
    """What a cancel has done to a task."""

    CANCELLED = "cancelled"
    """It was not claimed, and never runs (again)."""
    STOPPING = "stopping"
    """It is cancelled; the host that has claimed it stops it with the grace, or does not start it."""
    ENDED = "ended"
    """It had ended before; its result stays."""
    UNKNOWN = "unknown"
    """The task group has no such task."""


class CancelledTask(AnswerBody):
    task_id: int
    outcome: CancelOutcome
    state: TaskState | None = None
    """After the call, if the task has ended."""


class CancelledTasks(AnswerBody):
    """How many tasks a cancel found in which state; of a dry run, how many it would cancel."""

    cancelled: int
    stopping: int
    ended: int = 0
    unknown: int = 0
    tasks: list[CancelledTask] = Field(default=[])
    """Of a list, in its order."""
    next: int | None = None
    """Of a filter: ``after`` of the next part; None: there is no more."""
