"""Bodies of the calls by which worker services claim and report named tasks (protocol P10)."""

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta, Raw

from mitosis.contracts.wire import (
    MAX_CLAIM,
    Answer,
    HostTime,
    Int32,
    Outcome,
    ReportStatus,
    Request,
)

MAX_HELD_ATTEMPTS = 10_000
MAX_PROGRESS = 1_000
MAX_CHECKPOINT_BYTES = 65_536
MAX_CLAIM_WAIT_SECONDS = 10.0
"""A waiting claim ends empty after so long at most, and is repeated (protocol P7)."""

Incarnation = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class HeldAttempt(Request):
    """An attempt that a process executes, or whose report has no answer yet."""

    task_id: UUID
    attempt: Int32


class ClaimNamedTasks(Request):
    """Take tasks for the free slots of a process. A process makes one claim at a time."""

    incarnation: Incarnation
    held: Annotated[tuple[HeldAttempt, ...], Meta(max_length=MAX_HELD_ATTEMPTS)] = ()
    """All attempts that the process holds. What is claimed for it besides is returned again, because the
    answer of an earlier claim was lost."""
    max_tasks: Annotated[int, Meta(ge=1, le=MAX_CLAIM)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=MAX_CLAIM_WAIT_SECONDS)] = 0.0


class NamedTaskAttempt(Answer):
    """An attempt to execute now, with the configuration of this worker service."""

    task_id: UUID
    attempt: int
    task_group_id: UUID
    task_group_name: str
    namespace: str
    name: str
    version: str
    spec: Raw
    """The task as it was submitted, with ``arguments`` and ``timeout_seconds``."""
    configuration: Raw
    configuration_version: int
    alone: bool = False
    """The processes of two services were lost while it ran: start it when nothing else runs (P5)."""
    stop: bool = False
    """Its task group has ended: do not start it, report it as cancelled."""
    checkpoint: Any = None
    """That an earlier attempt of the task has stored last."""


class ClaimNamedTasksAnswer(Answer):
    tasks: tuple[NamedTaskAttempt, ...]
    draining: bool
    """Nothing new is given: finish what is in hand."""


class NamedTaskReport(Request):
    """How one attempt ended. ``detail`` is as in :class:`~mitosis.contracts.wire.TaskReport`."""

    task_id: UUID
    attempt: Int32
    outcome: Outcome
    kind: str | None = None
    """Of a failure; None is ``handler_error``."""
    exit_code: Int32 | None = None
    signal: Int32 | None = None
    started_at: HostTime | None = None
    finished_at: HostTime | None = None
    detail: Raw = msgspec.field(default_factory=lambda: Raw(b"{}"))


class ReportNamedTasks(Request):
    incarnation: Incarnation
    reports: list[NamedTaskReport]


class TaskProgress(Request):
    """How far one attempt is; what is left out stays as it was."""

    task_id: UUID
    attempt: Int32
    fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    stage: Annotated[str, Meta(max_length=100)] | None = None
    message: Annotated[str, Meta(max_length=1000)] | None = None
    checkpoint: Any = None
    """Any JSON of at most 65,536 bytes; later attempts get it with their claim."""


class RecordProgress(Request):
    incarnation: Incarnation
    progress: Annotated[tuple[TaskProgress, ...], Meta(max_length=MAX_PROGRESS)]


class ProgressStatus(StrEnum):
    RECORDED = "recorded"
    """It is stored. Later attempts get its checkpoint."""
    SUPERSEDED = "superseded"
    """The attempt does not count any more: stop it."""


class RecordProgressAnswer(Answer):
    """``statuses[i]`` answers ``progress[i]``."""

    statuses: list[ProgressStatus]


class ReportOperation(StrEnum):
    """What a process that handles one task at a time says about it."""

    FINISH = "Finish"
    """It has ended; Commit follows with the result. Answers whether that would count."""
    COMMIT = "Commit"
    """How it ended. This records it."""
    CANCEL = "Cancel"
    """It was stopped, and is recorded as cancelled."""
    UPLOAD = "Upload"
    """Its files are to be stored: not available."""


class SingleReport(NamedTaskReport, kw_only=True):
    """A report of a process that handles one task at a time."""

    incarnation: Incarnation
    operation: ReportOperation = ReportOperation.COMMIT
    outcome: Outcome = Outcome.SUCCEEDED
    """Of a Commit."""


class RegistrationStanding(StrEnum):
    """What the registration of a process is, in the answer to its reports."""

    CURRENT = "current"
    OVER = "over"
    """The service is registered no longer: register again."""
    SUPERSEDED = "superseded"
    """A later process has registered: end."""


class SingleReportAnswer(Answer):
    standing: RegistrationStanding
    status: ReportStatus | None
    """None after a Finish whose Commit would count."""


class ReportNamedTasksAnswer(Answer):
    """``statuses[i]`` answers ``reports[i]``."""

    standing: RegistrationStanding
    statuses: list[ReportStatus]
