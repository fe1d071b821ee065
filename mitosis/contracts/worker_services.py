"""Bodies of the calls about worker services and the named tasks that they support."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from mitosis.contracts.checked_model import Flag, Integer, Number
from mitosis.contracts.http import AnswerBody, Int32, PositiveDuration, RequestBody
from mitosis.contracts.identifiers import Name, PlainText, Tag
from mitosis.contracts.json_depth import is_deeper
from mitosis.contracts.lifetimes import TOKEN_LIFETIME
from mitosis.contracts.named_tasks import LATEST, task_name
from mitosis.contracts.queries import Query
from mitosis.contracts.worker_health import (
    LEAST_SILENCE_SECONDS,
    SILENCE_SECONDS,
    WorkerHealth,
)

MAX_SUPPORTED_TASKS = 1000
MAX_CONFIGURATION_BYTES = 65_536
MAX_METADATA_BYTES = 16_384
MAX_DEPTH = 32
MAX_TAGS = 100
MAX_HELD_TASKS = 10_000
WORKER_ID = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,254}$"
VERSION = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$"
RESERVED_IDS = frozenset({"heartbeat", "goodbye", "token", "tasks", "claim", "report"})
"""Paths of calls, where the id of a worker service would stand."""
PROTOCOL_VERSION = "2.0"
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

Command = Literal["execute_batch", "health_check", "shutdown"]
ShortText = Annotated[PlainText, StringConstraints(max_length=255)]
Reason = Annotated[PlainText, StringConstraints(max_length=1000)]
Incarnation = Annotated[Integer, Field(ge=1, le=2**63 - 1)]
Count = Annotated[Integer, Field(ge=1, le=2**31 - 1)]
TagSet = Annotated[frozenset[Tag], Field(max_length=MAX_TAGS)]


def _worker_id(text: str) -> str:
    if not re.fullmatch(WORKER_ID, text) or text.endswith("\n"):
        raise ValueError(
            "must be 1 to 255 letters, digits and . _ : @ -, the first a letter or digit"
        )
    if text in RESERVED_IDS:
        raise ValueError(f"must not be one of {', '.join(sorted(RESERVED_IDS))}")
    return text


def _version(text: str) -> str:
    if not re.fullmatch(VERSION, text) or text.endswith("\n"):
        raise ValueError(
            "must be 1 to 100 letters, digits and . _ + -, the first a letter or digit"
        )
    if text == LATEST:
        raise ValueError("must be an exact version; latest is no version of its own")
    return text


def _json_of(value: dict[str, Any]) -> bytes:
    """Return the JSON of a value.

    Raises:
        ValueError: there is none; says why.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("contains a lone surrogate, which is half a character") from None
    except RecursionError:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        raise ValueError("contains a number that JSON does not have") from None
    except TypeError:
        raise ValueError("contains a value that JSON does not have") from None


def _storable(most_bytes: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a check of an object of JSON: size, depth, and values that PostgreSQL can store."""

    def check(value: dict[str, Any]) -> dict[str, Any]:
        raw = _json_of(value)
        if len(raw) > most_bytes:
            raise ValueError(f"must have at most {most_bytes} bytes of JSON, not {len(raw)}")
        if is_deeper(raw, MAX_DEPTH):
            raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
        if _NUL.search(raw):
            raise ValueError("must not contain a NUL character")
        return value

    return check


WorkerId = Annotated[
    str, AfterValidator(_worker_id), WithJsonSchema({"type": "string", "pattern": WORKER_ID})
]
"""As in ``payment_processor_1``; unique in the deployment."""
TaskVersion = Annotated[
    str, AfterValidator(_version), WithJsonSchema({"type": "string", "pattern": VERSION})
]
Configuration = Annotated[dict[str, Any], AfterValidator(_storable(MAX_CONFIGURATION_BYTES))]
Metadata = Annotated[dict[str, Any], AfterValidator(_storable(MAX_METADATA_BYTES))]


class SupportedTask(RequestBody):
    """A named task that a worker service supports, in each user group that it works for."""

    namespace: Name
    name: Name
    version: TaskVersion = "1.0.0"
    configuration: Configuration = Field(default={})
    """How this worker service executes it. A change gives it the next configuration version."""
    priority: Int32 = 100
    """Worker services with a higher one are preferred."""
    max_concurrent: Count | None = None
    """So many at the same time; None: as many as the worker service has slots."""


class ConnectionInfo(RequestBody):
    """How a worker service is reached. ``pull``: not at all, it asks for tasks."""

    connection_type: Literal["pull", "tcp", "unix"] = "pull"
    host: ShortText | None = Field(default=None, validate_default=True)
    listener_port: Annotated[Integer, Field(ge=1, le=65535)] | None = Field(
        default=None, validate_default=True
    )
    path: ShortText | None = Field(default=None, validate_default=True)
    """Of the socket, for ``unix``."""
    protocol_version: ShortText = PROTOCOL_VERSION
    supported_commands: Annotated[tuple[Command, ...], Field(max_length=3)] = ()

    @field_validator("host", "listener_port", "path")
    @classmethod
    def _has_address(cls, value: Any, known: ValidationInfo) -> Any:
        needing = "unix" if known.field_name == "path" else "tcp"
        if value is None and known.data.get("connection_type") == needing:
            raise ValueError(f"is required for the connection type {needing}")
        return value


def _task_id(value: UUID) -> UUID:
    if value.version != 8:
        raise ValueError("must be the id of a task, as it was claimed")
    return value


class HeldTask(RequestBody):
    """An attempt that a process of a worker service executes, or whose end it has not reported."""

    task_id: Annotated[UUID, AfterValidator(_task_id)]
    attempt: Annotated[Integer, Field(ge=1, le=2**31 - 1)]


HeldTasks = Annotated[tuple[HeldTask, ...], Field(max_length=MAX_HELD_TASKS)]


class RegisterWorker(RequestBody):
    """A process of a worker service that starts: all that it is and supports."""

    worker_id: WorkerId
    metadata: Metadata = Field(default={})
    """Version, runtime, host name, process id and the like, for people."""
    tags: TagSet = frozenset()
    labels: TagSet = frozenset()
    groups: Annotated[tuple[str, ...], Field(max_length=MAX_TAGS)] = ()
    """``name`` or ``name:role`` (read, write, admin; default write). Empty: as before, or for a new one the
    caller's own group. Only for calls with the token of a user."""
    slots: Count = 1
    """So many tasks at the same time."""
    silence_seconds: Annotated[Number, Field(ge=LEAST_SILENCE_SECONDS, le=86_400)] = SILENCE_SECONDS
    """After so long without contact the registration is over."""
    incarnation: Incarnation | None = None
    """Larger than that of every earlier process, as the time of the start in microseconds. A repeated call
    with the same one changes nothing. None: the next one."""
    machine_id: ShortText | None = None
    take_over: Flag = False
    """Register although another machine that is in contact uses the id."""
    unreported: HeldTasks = ()
    """Attempts that have ended and are not reported yet, from the journal of the process before. They stay
    claimed until this one reports them; all else that the service held is ready again."""
    supported_tasks: Annotated[
        tuple[SupportedTask, ...], Field(max_length=MAX_SUPPORTED_TASKS)
    ] = ()
    """All of them: one that is left out is supported no longer."""
    connection_info: ConnectionInfo = ConnectionInfo()
    lifetime: PositiveDuration = TOKEN_LIFETIME
    """Of the token in the answer."""

    @field_validator("supported_tasks")
    @classmethod
    def _each_once(cls, tasks: tuple[SupportedTask, ...]) -> tuple[SupportedTask, ...]:
        seen = set[tuple[str, str, str]]()
        for task in tasks:
            key = (task.namespace, task.name, task.version)
            if key in seen:
                raise ValueError(f"has {task_name(*key)} twice")
            seen.add(key)
        return tasks


class RegisteredWorker(AnswerBody):
    worker_id: str
    worker_uuid: UUID
    registration_id: int
    incarnation: int
    token: str
    expires_at: datetime
    heartbeat_seconds: float
    """Send a heartbeat this often."""
    silence_seconds: float


class WorkerHeartbeat(RequestBody):
    incarnation: Incarnation
    held: HeldTasks = ()
    """What the process executes; the answer says what of it to stop. It may be sent more often for that."""


class StopTask(AnswerBody):
    """An attempt to stop: ask it to end, kill it after the grace, report it as cancelled."""

    task_id: UUID
    attempt: int
    superseded: bool
    """Its report counts no more."""
    grace_seconds: float
    reason: str


class HeartbeatAnswer(AnswerBody):
    registration_id: int
    draining: bool
    """Finish the tasks in hand and claim no others."""
    alive_until: datetime
    stop: tuple[StopTask, ...] = ()
    """Of the attempts that the heartbeat names."""


class WorkerGoodbye(RequestBody):
    incarnation: Incarnation
    reason: Reason = "goodbye"
    """Shown in the history."""


class DrainWorker(RequestBody):
    reason: Reason | None = None


class WorkerTaskInfo(AnswerBody):
    """A named task that a worker service supports, with its own configuration."""

    group_name: str
    namespace: str
    name: str
    version: str
    configuration: dict[str, Any]
    """The values are null for users whose role is only read."""
    configuration_version: int
    priority: int
    max_concurrent: int | None = None


class WorkerInfo(AnswerBody):
    worker_id: str
    worker_uuid: UUID
    health: WorkerHealth
    groups: list[str]
    tags: list[str]
    labels: list[str]
    metadata: dict[str, Any]
    slots: int
    silence_seconds: float
    draining_since: datetime | None = None
    drain_reason: str | None = None
    connection_type: str
    connection_details: dict[str, Any]
    registered_at: datetime
    last_heartbeat_at: datetime | None = None
    unregistered_at: datetime | None = None
    created_at: datetime
    task_count: int
    supported_tasks: list[WorkerTaskInfo] | None = None
    """If one worker service is requested; null in lists."""


class RegistrationInfo(AnswerBody):
    """A registration of a worker service: from the start of a process to its end."""

    registration_id: int
    incarnation: int
    health: WorkerHealth
    connection_type: str
    connection_details: dict[str, Any]
    registered_at: datetime
    last_heartbeat_at: datetime | None = None
    unregistered_at: datetime | None = None
    failure_reason: str | None = None
    """Why it ended."""
    duration_seconds: float
    """Until it ended, or until now."""


class NamedTaskInfo(AnswerBody):
    """A named task of a user group, and the worker services that can execute it now."""

    group_name: str
    namespace: str
    name: str
    version: str
    available: int
    """Worker services that are healthy and not drained."""
    worker_ids: list[str]
    """Theirs, in ascending order."""
    supporting: int
    """All that support it, also those that cannot execute it now."""
    created_at: datetime


class AvailableWorker(AnswerBody):
    """A worker service that can execute a named task now."""

    worker_id: str
    worker_uuid: UUID
    metadata: dict[str, Any]
    connection_type: str
    connection_details: dict[str, Any]
    configuration: dict[str, Any]
    """The values are null for users whose role is only read."""
    configuration_version: int
    priority: int
    last_heartbeat_at: datetime


class WorkersQuery(Query):
    """Query of the list of worker services."""

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class HistoryQuery(Query):
    """Query of the registrations of a worker service, the last one first."""

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class NamedTasksQuery(Query):
    """Query of the list of named tasks."""

    available: Literal["any", "none", "one"] = "any"
    """``none``: only gaps, which no worker service can execute now; ``one``: only those with a single one."""
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class NamedTaskQuery(Query):
    """The user group whose named task it is; None: the caller's own."""

    group_name: Name | None = None
