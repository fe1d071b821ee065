"""Bodies of the hot HTTP calls: submit, claim, report and the manager's renewal.

msgspec structs. These are decoded from the raw request body (10,000 tasks in 4 ms; pydantic takes ten times
as long), and the OpenAPI document has their JSON Schema. All other bodies are pydantic models
(``mitosis.contracts.http``). Unknown fields are ignored in answers and refused in requests.
"""

from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Raw

from mitosis.contracts.liveness import HOST_LOST_AFTER
from mitosis.contracts.task import SubmittedTask

MAX_CLAIM = 1_000
MAX_REPORTS = 5_000
MAX_HELD = 20_000
MAX_CHUNKS = 1_000
MAX_CHUNK_BYTES = 131_072

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
BigInt = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
SubmissionKey = Annotated[str, Meta(min_length=1, max_length=200)]
"""Idempotency key of a submission."""
HostTime = Annotated[float, Meta(ge=0, le=253_402_300_799)]
"""Seconds since the epoch, clock of a host; up to the year 9999."""


class Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base of the request bodies."""


class Answer(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Base of the answers."""


# --- submit: POST /task-groups/{id}/tasks ------------------------------------------------------


class SubmitTasks(Request):
    """Up to 10,000 tasks, all or nothing."""

    tasks: Annotated[list[SubmittedTask], Meta(min_length=1)]
    idempotency_key: SubmissionKey | None = None
    """Repeating the key (and part) returns the first answer and creates nothing."""
    part: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    """Number of this part of a larger submission under one key."""
    require_worker: bool = False
    """Refuse named tasks that no worker service can execute now (``no_workers_available``); they wait for
    one otherwise. A repeated submission is not refused."""


class SubmitAnswer(Answer):
    """``task_ids[i]`` is the task of ``tasks[i]``, or its unfinished duplicate by dedup key."""

    task_ids: list[int]
    created: int
    replayed: bool = False
    depends_on_ignored: list[int] = []
    """Indices of tasks that were no new ones, by dedup key: what they depend on stays as it was."""
    named_tasks: list[str | None] = []
    """If a task was submitted with the version ``latest``: the named task of each, with its exact version;
    null for one that was deleted since."""


# --- claim: POST /managers/tasks/claim ----------------------------------------------------------


class ClaimTasks(Request):
    """Take up to ``max_tasks`` under a live epoch; protocol P3."""

    epoch: BigInt
    claim_seq: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    """This lease's claim counter; the same number again returns the same rows."""
    acked_seq: Count
    """Number of the last claim whose answer has arrived."""
    max_tasks: Annotated[int, Meta(ge=1, le=MAX_CLAIM)]
    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0
    max_late: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Number of tasks to answer if the claim had to wait for one; None: ``max_tasks``. What a host asks for
    beyond its idle workers may be of more use to another host by then."""
    """How long to wait while nothing is claimable (P7)."""


class ClaimedTask(Answer):
    task_id: int
    attempt: int
    spec: Raw
    """The stored :class:`SubmittedTask` as JSON; the agent passes it on without decoding it."""
    alone: bool = False
    """Two hosts were lost while it ran: run no other task beside it (P5)."""
    announce: bool = False
    """Its last claim ended without a known start: start it only after :attr:`Renewal.announced` is
    answered for it (P5)."""


class LeaseStanding(StrEnum):
    """State of the manager's lease, in every answer."""

    ACTIVE = "active"
    ENDING = "ending"
    """Claim nothing more, return unstarted tasks, let running ones finish (or kill them), report."""
    GONE = "gone"
    """The manager no longer holds it: drop unstarted tasks, replay the journal, say hello again."""


class ClaimAnswer(Answer):
    standing: LeaseStanding
    tasks: list[ClaimedTask] = []


# --- report: POST /managers/tasks/report --------------------------------------------------------


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ReportFields(Request):
    """The fields of a report that are columns of a task. The worker adds ``detail`` in its own type."""

    task_id: BigInt
    attempt: Int32
    outcome: Outcome
    kind: str | None = None
    """A :class:`mitosis.contracts.outcome.FailureKind`; None when it succeeded."""
    exit_code: Int32 | None = None
    signal: Int32 | None = None
    started_at: HostTime | None = None
    """None = it never started."""
    finished_at: HostTime | None = None


class TaskReport(ReportFields, kw_only=True):
    """The end of one attempt. Small facts as fields, the rest as one JSON document.

    ``detail`` is JSON: ``{"result", "message", "traceback", "stdout", "stderr", "stdout_base64",
    "stderr_base64", "stdout_bytes", "stderr_bytes", "usage": {"user_seconds", "system_seconds",
    "max_rss_bytes"}, "worker", "cpus"}``, each key optional.
    """

    detail: Raw = msgspec.field(default_factory=lambda: Raw(b"{}"))


class ReportTasks(Request):
    epoch: BigInt
    reports: list[TaskReport]


class ReportStatus(StrEnum):
    COMMITTED = "committed"
    """Recorded now. The task has its result, or is queued for another attempt."""
    DUPLICATE = "duplicate"
    """This attempt was recorded before. The sender treats this as success."""
    SUPERSEDED = "superseded"
    """The task has been claimed again or ended otherwise: the report changed nothing."""
    UNKNOWN = "unknown"
    """No such task."""


class ReportAnswer(Answer):
    """``statuses[i]`` answers ``reports[i]``."""

    standing: LeaseStanding
    statuses: list[ReportStatus]


class TaskReportAnswer(Answer):
    """The status of one report: ``POST /managers/tasks``."""

    standing: LeaseStanding
    status: ReportStatus


# --- live output: POST /managers/tasks/followed, POST /managers/tasks/output -----------------------


class Followed(Request):
    """The followers that the agent knows; the answer comes as soon as they change (P7)."""

    epoch: BigInt
    tasks: list[BigInt] = []
    everything: bool = False
    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0


class FollowedAnswer(Answer):
    standing: LeaseStanding
    tasks: list[int] = []
    """Tasks of the group, on any host, that are followed one by one."""
    everything: bool = False
    """The whole group is followed."""


class OutputChunk(Request):
    """Bytes that a running attempt has written; ``offset`` counts from its first byte."""

    task_id: BigInt
    attempt: Int32
    stream: Literal["stdout", "stderr"]
    offset: BigInt
    data: Annotated[bytes, Meta(max_length=MAX_CHUNK_BYTES)]
    """Base64 in JSON."""


class WriteOutput(Request):
    """Output for followers; chunks without a follower, or of another manager's attempt, are dropped."""

    epoch: BigInt
    chunks: Annotated[list[OutputChunk], Meta(max_length=MAX_CHUNKS)]
    whole: bool = False
    """The chunks are for a reader of whole output: they are kept until it has them, or refused."""


class WriteOutputAnswer(Answer):
    standing: LeaseStanding
    written: int
    full: bool = False
    """Of whole output: the reader is behind and nothing was kept; send the same chunks again."""
    unread: list[int] = []
    """Of whole output: the tasks whose chunks were refused, because nothing reads them."""


class ReadOutput(Request):
    """Read the whole output of the tasks of a group: ``POST /task-groups/{id}/output/read``.

    While a reader calls at least every 30 s, tasks submitted with ``stream_output`` send all that they
    write, and wait when it is behind.
    """

    reader: UUID
    """Chosen by the reader; the same in each call."""
    after: Count = 0
    """``after`` of the last answer: the chunks before it have arrived."""
    wait_seconds: Annotated[float, Meta(ge=0, le=20)] = 0.0


class OutputPiece(Answer):
    """A chunk of the whole output; those of one stream of one attempt come in order, without gaps."""

    task_id: int
    attempt: int
    stream: Literal["stdout", "stderr"]
    offset: int
    data: bytes


class ReadOutputAnswer(Answer):
    after: int
    """``after`` of the next call."""
    pieces: list[OutputPiece] = []


# --- renewal: POST /managers/heartbeat ----------------------------------------------------------


class TaskAttempt(Request):
    task_id: BigInt
    attempt: Int32


class Held(Request):
    """Everything of this epoch that the agent holds, runs or has in its journal (P3)."""

    acked_seq: Count
    task_ids: list[BigInt]


class Renewal(Request):
    """Contact every 3 s, with or without a lease."""

    incarnation: BigInt
    epoch: BigInt | None = None
    started: list[TaskAttempt] = []
    """Attempts that have been running for more than 1 s."""
    returned: list[TaskAttempt] = []
    """Claimed but unstarted tasks that the agent returns."""
    cannot_start: Annotated[str, Meta(min_length=1, max_length=2000)] | None = None
    """Why this host cannot start workers: the lease ends, and the next offer comes after a pause."""
    workers_started: bool = False
    """Workers run under this lease: sent once."""
    announced: list[TaskAttempt] = []
    """Attempts that start as soon as the answer says that their start is recorded (P5)."""
    held: Held | None = None
    """Sent every 30 s and on reconnect."""
    running: list[TaskAttempt] = []
    """Attempts that run now: sent with ``held``, and always while the lease is gone (P5)."""
    over: BigInt | None = None
    """Epoch of a lease under which nothing runs here any more, with everything reported or returned; or
    whose setup has failed. The lease ends (P8)."""
    report_trouble: Annotated[str, Meta(max_length=2_000)] | None = None
    """Why reports wait on the host although the API is in contact, and what becomes of them; or why the
    host claims nothing."""


class CancelOrder(Answer):
    """What to do with running tasks while a lease is ending."""

    kill: bool
    """True: SIGTERM, ``grace_seconds``, SIGKILL. False: let them finish."""
    grace_seconds: float
    reason: str


class StopOrder(Answer):
    """A user cancelled this attempt: stop it if it runs, and do not start it otherwise."""

    task_id: int
    attempt: int
    grace_seconds: float
    reason: str


class LeaseNotice(Answer):
    """The manager's live lease, in the answer to a renewal that did not name it."""

    epoch: int
    task_group_id: UUID
    standing: LeaseStanding
    """ACTIVE: work under it (P6). ENDING: start nothing under it, and say when nothing is left (P8)."""


class RenewalAnswer(Answer):
    standing: LeaseStanding | None = None
    """None: the renewal named no epoch. GONE without one: the manager counts as lost, say hello again."""
    order: CancelOrder | None = None
    """Present while the lease is ending, and if a lost lease's running tasks must be killed."""
    superseded: list[TaskAttempt] = []
    """Those of ``running`` whose end no longer counts: stop them with the task group's grace (P5)."""
    stops: list[StopOrder] = []
    """Repeated until the agent has reported or returned the attempt."""
    recorded: list[int] = []
    """Tasks of ``Renewal.announced`` that are recorded as started and may start now."""
    lease: LeaseNotice | None = None
    teardowns: list[UUID] = []
    """Task groups whose environment must be torn down here, also those that no longer exist (P8)."""
    host_lost_after_seconds: float = HOST_LOST_AFTER.total_seconds()
    request_fields: dict[str, list[str]] = {}
    """As in the answer to a hello: another API may have taken over since."""
