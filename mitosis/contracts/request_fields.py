"""The fields of the requests of an agent, and which of them an API of another version accepts.

An API refuses a request with a field that it does not know. So the answers to hello and to renewals list what
it accepts, and an agent sends a field that is not in :data:`FIRST` only while it is listed. A field that is
added to a body needs a default, and nothing else: it is listed and left out by what stands here.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo
from pydantic import BaseModel

from mitosis.contracts.agent_http import (
    AttemptList,
    EnvironmentChange,
    Goodbye,
    Hello,
    HookReport,
)
from mitosis.contracts.wire import (
    ClaimTasks,
    Followed,
    Held,
    OutputChunk,
    Renewal,
    ReportTasks,
    TaskAttempt,
    TaskReport,
    WriteOutput,
)

RequestFields: TypeAlias = Mapping[str, Sequence[str]]
"""Name of a body -> its fields."""

BODIES: tuple[type[Struct] | type[BaseModel], ...] = (
    *(Hello, AttemptList, Goodbye, EnvironmentChange, HookReport),
    *(Renewal, Held, TaskAttempt, ClaimTasks, ReportTasks, TaskReport),
    *(Followed, WriteOutput, OutputChunk),
)

FIRST: RequestFields = {
    "Hello": (
        *(
            "incarnation",
            "machine_id",
            "boot_id",
            "host_name",
            "cores",
            "agent_version",
            "take_over",
        ),
        *("journal", "planned_stop", "begun"),
    ),
    "AttemptList": ("task_id_steps", "attempts"),
    "Goodbye": ("epoch",),
    "EnvironmentChange": ("event", "epoch", "fingerprint", "degraded", "hook"),
    "HookReport": (
        *("state", "exit_code", "signal", "message", "stdout_tail", "stderr_tail", "retry_count"),
        *("started_at", "finished_at"),
    ),
    "Renewal": (
        *("incarnation", "epoch", "started", "returned", "cannot_start", "workers_started"),
        *("announced", "held", "running", "over", "report_trouble"),
    ),
    "Held": ("acked_seq", "task_ids"),
    "TaskAttempt": ("task_id", "attempt"),
    "ClaimTasks": ("epoch", "claim_seq", "acked_seq", "max_tasks", "wait_seconds", "max_late"),
    "ReportTasks": ("epoch", "reports"),
    "TaskReport": (
        *("task_id", "attempt", "outcome", "kind", "exit_code", "signal", "started_at"),
        *("finished_at", "detail"),
    ),
    "Followed": ("epoch", "tasks", "everything", "wait_seconds"),
    "WriteOutput": ("epoch", "chunks", "whole"),
    "OutputChunk": ("task_id", "attempt", "stream", "offset", "data"),
}
"""What every API accepts, also one that lists nothing. It never changes."""

IN_LISTS = ("TaskAttempt", "TaskReport", "OutputChunk")
"""Bodies that are sent many at a time, or are encoded by workers: they get no new fields.

New facts have a place in the ``detail`` of a report, or in a field beside the list.
"""


def accepted_fields() -> dict[str, list[str]]:
    """Return what this version accepts."""
    return {body.__name__: list(_names(body)) for body in BODIES}


def common_fields(of_each: Sequence[RequestFields]) -> dict[str, list[str]]:
    """Return what several processes accept, all of them; the first bodies where one lists nothing."""
    lists = [{**FIRST, **one} for one in of_each]
    return {
        name: [field for field in fields if all(field in one.get(name, ()) for one in lists)]
        for name, fields in (lists[0] if lists else FIRST).items()
    }


def encoded(body: Struct | BaseModel, listed: RequestFields) -> bytes:
    """Return the JSON of a request, without the fields that are neither first nor listed."""
    if isinstance(body, BaseModel):
        return body.model_dump_json(exclude_unset=True, exclude=_excluded(body, listed)).encode()
    return _encode(_reduced(body, listed))


_encode = msgspec.json.Encoder().encode


def _names(body: type[Struct] | type[BaseModel]) -> tuple[str, ...]:
    if issubclass(body, BaseModel):
        return tuple(body.model_fields)
    return body.__struct_fields__


@cache
def _added(body: type[Struct] | type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of a body that its first version lacks; none of a body that came later as a whole."""
    first = FIRST.get(body.__name__, _names(body))
    return tuple(name for name in _names(body) if name not in first)


def _unlisted(body: Struct | BaseModel, listed: RequestFields) -> list[str]:
    known = listed.get(type(body).__name__, ())
    return [name for name in _added(type(body)) if name not in known]


def _reduced(body: Struct, listed: RequestFields) -> Struct:
    """Return the body with the defaults of unlisted fields, which are not encoded."""
    changes: dict[str, Any] = {
        name: _default(_infos(type(body))[name]) for name in _unlisted(body, listed)
    }
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, Struct) and name not in changes:
            reduced = _reduced(value, listed)
            if reduced is not value:
                changes[name] = reduced
    return msgspec.structs.replace(body, **changes) if changes else body


@cache
def _infos(body: type[Struct]) -> dict[str, FieldInfo]:
    return {info.name: info for info in msgspec.structs.fields(body)}


def _default(info: FieldInfo) -> Any:
    return info.default if info.default_factory is NODEFAULT else info.default_factory()


def _excluded(body: BaseModel, listed: RequestFields) -> dict[str, Any]:
    """Return what pydantic leaves out: fields, and fields of the bodies in fields."""
    excluded: dict[str, Any] = dict.fromkeys(_unlisted(body, listed), True)
    for name in body.model_fields_set:
        value = getattr(body, name)
        if isinstance(value, BaseModel) and name not in excluded:
            inner = _excluded(value, listed)
            if inner:
                excluded[name] = inner
    return excluded
