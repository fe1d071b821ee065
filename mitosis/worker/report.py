"""The reports of a worker: each is encoded here once, and passed on as bytes from then on."""

import json
import re
import resource
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mitosis.contracts.json_depth import is_deeper, too_deep_text
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.wire import Outcome, ReportFields
from mitosis.ipc.messages import EncodedReport, RunTask
from mitosis.worker.output import Tail

MAX_RESULT_BYTES = 1_000_000
MAX_TRACEBACK_CHARS = 16_000
MAX_MESSAGE_CHARS = 2_000

_NO_OUTPUT = Tail("", 0)
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class Usage(msgspec.Struct, frozen=True):
    """Resource usage of an attempt.

    ``max_rss_bytes`` of a command is at least the memory of its worker at the start (vfork shares it
    until exec); of a handler it is the maximum of its worker so far.
    """

    user_seconds: float
    system_seconds: float
    max_rss_bytes: int

    @classmethod
    def of(cls, after: resource.struct_rusage) -> "Usage":
        """Convert the usage of a child. Source: getrusage(2); Linux counts ``ru_maxrss`` in KiB."""
        return cls(round(after.ru_utime, 6), round(after.ru_stime, 6), after.ru_maxrss * 1024)


class Detail(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The JSON that ``mitosis.contracts.wire.TaskReport.detail`` describes."""

    result: msgspec.Raw | None = None
    message: str | None = None
    traceback: str | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_base64: str | None = None
    """The kept bytes, if they are not UTF-8: :mod:`mitosis.contracts.task_output`."""
    stderr_base64: str | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    usage: Usage | None = None
    worker: int
    cpus: tuple[int, ...]
    cpus_at_end: tuple[int, ...] | None = None
    """The cores that the task allowed itself, if it had more than ``cpus`` when it ended."""


class _Report(ReportFields, kw_only=True):
    """A :class:`mitosis.contracts.wire.TaskReport` whose detail is not encoded yet."""

    detail: Detail


@dataclass(slots=True, kw_only=True)
class Ended:
    """How an attempt ended, before it is encoded. ``kind`` None: it succeeded."""

    kind: FailureKind | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    started_at: float | None = None
    finished_at: float = 0.0
    result: bytes | None = None
    """JSON."""
    traceback: str | None = None
    stdout: Tail = field(default=_NO_OUTPUT)
    stderr: Tail = field(default=_NO_OUTPUT)
    usage: Usage | None = None
    mask: Set[int] = frozenset()
    """The cores that the command, or the worker of a handler, was allowed at the end; empty: unknown."""

    @property
    def seconds(self) -> float:
        """How long it ran; 0 if it never started."""
        return 0.0 if self.started_at is None else max(0.0, self.finished_at - self.started_at)

    def outcome(self) -> Outcome:
        if self.kind is None:
            return Outcome.SUCCEEDED
        return Outcome.CANCELLED if self.kind is FailureKind.CANCELLED else Outcome.FAILED


def ended_by_exit(error: SystemExit, traceback: str) -> Ended:
    """Return the end of a handler that called ``sys.exit``: 0 is success, as for a program."""
    if error.code is None or error.code == 0:
        return Ended()
    code = error.code if isinstance(error.code, int) else 1
    return Ended(
        kind=FailureKind.HANDLER_ERROR,
        message=f"called sys.exit({error.code!r})",
        exit_code=code & 0xFF,
        traceback=traceback,
    )


class ResultError(Exception):
    """The return value of a handler cannot be stored."""


_encoder = msgspec.json.Encoder()


def encode_report(task: RunTask, ended: Ended, slot: int, cpus: tuple[int, ...]) -> EncodedReport:
    """Encode the report of an attempt of ``task`` that ended in this slot."""
    detail = Detail(
        result=None if ended.result is None else msgspec.Raw(ended.result),
        message=_bounded(ended.message, MAX_MESSAGE_CHARS),
        traceback=_bounded(ended.traceback, MAX_TRACEBACK_CHARS),
        stdout=ended.stdout.text,
        stderr=ended.stderr.text,
        stdout_base64=ended.stdout.exact,
        stderr_base64=ended.stderr.exact,
        stdout_bytes=ended.stdout.total_bytes,
        stderr_bytes=ended.stderr.total_bytes,
        usage=ended.usage,
        worker=slot,
        cpus=cpus,
        cpus_at_end=None if ended.mask <= set(cpus) else tuple(sorted(ended.mask)),
    )
    report = _Report(
        task_id=task.key.task_id,
        attempt=task.key.attempt,
        outcome=ended.outcome(),
        kind=None if ended.kind is None else ended.kind.value,
        exit_code=ended.exit_code,
        signal=ended.signal,
        started_at=ended.started_at,
        finished_at=ended.finished_at,
        detail=detail,
    )
    return EncodedReport(task.key, ended.started_at, ended.finished_at, _encoder.encode(report))


def encode_result(value: Any, what: str = "the handler's result") -> bytes:
    """Encode the return value of a handler as JSON; errors call it ``what``.

    Raises:
        ResultError: not JSON, not storable (NaN, NUL, lone surrogates, keys that JSON makes equal), nested
            deeper than every reader can read, or over MAX_RESULT_BYTES.
    """
    try:
        data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        clash = _clashing_key(value)
    except RecursionError:
        raise ResultError(f"{what} {too_deep_text()}, or contains itself") from None
    except UnicodeEncodeError:
        raise ResultError(
            f"{what} contains a lone surrogate, as in a file name that is not UTF-8"
        ) from None
    except (TypeError, ValueError) as error:
        raise ResultError(f"{what} is not JSON: {error}") from None
    if len(data) > MAX_RESULT_BYTES:
        raise ResultError(
            f"{what} has {len(data):,} bytes of JSON; the limit is {MAX_RESULT_BYTES:,}"
        )
    if is_deeper(data):
        raise ResultError(
            f"{what} {too_deep_text()}: return a flatter value, or the name of a file"
        )
    if _ESCAPED_NUL.search(data):
        raise ResultError(f"{what} contains a NUL character, which cannot be stored")
    if clash is not None:
        raise ResultError(f"{what} has two keys that are {clash!r} in JSON: use str keys")
    return data


def _clashing_key(value: Any) -> str | None:
    """Return a key that two keys of one dict become in JSON, as 1 and "1" do; None if there is none.

    ``value`` has been encoded, so its keys are of types that JSON takes, and it does not contain itself.
    """
    pending = [value] if isinstance(value, _CONTAINERS) else []
    while pending:
        found = pending.pop()
        if isinstance(found, dict) and len(set(map(type, found))) > 1:
            names = [_key_text(key) for key in found]
            if len(set(names)) < len(names):
                return next(name for name in names if names.count(name) > 1)
        inner = found.values() if isinstance(found, dict) else found
        pending += [item for item in inner if isinstance(item, _CONTAINERS)]
    return None


_CONTAINERS = (dict, list, tuple)


def _key_text(key: Any) -> str:
    """Return the key as ``json.dumps`` writes it."""
    text: str = next(iter(json.loads(json.dumps({key: 0}))))
    return text


def _bounded(text: str | None, limit: int) -> str | None:
    """Cut a text to its end, which holds the cause; replace what PostgreSQL cannot store."""
    if text is None:
        return None
    if len(text) > limit:
        text = f"[{len(text) - limit:,} characters left out]\n{text[-limit:]}"
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
