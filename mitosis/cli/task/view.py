"""Tables and details of tasks. Pure functions of the API's answers."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mitosis.cli.rendering import Item, Table, elapsed_text, time_text
from mitosis.contracts.outcome import signal_name
from mitosis.contracts.task import shown_argv
from mitosis.contracts.task_output import kept_bytes

if TYPE_CHECKING:
    from mitosis.contracts.http import TaskFailureInfo, TaskInfo

WHAT_WIDTH = 48
OUTPUT_WIDTH = 40


def tasks_table(tasks: "Sequence[TaskInfo]") -> Table:
    rows = [
        (
            str(task.task_id),
            str(task.state),
            ending_text(task),
            str(task.attempt),
            task.manager_name or "",
            elapsed_text(task.started_at, task.finished_at),
            _cut(what_text(task), WHAT_WIDTH),
            _cut(output_text(task), OUTPUT_WIDTH),
        )
        for task in tasks
    ]
    return Table(
        data=[task.model_dump(mode="json") for task in tasks],
        columns=("task", "state", "ended", "attempt", "host", "time", "what", "output"),
        rows=rows,
        ids=[str(task.task_uuid) for task in tasks],
        empty="no tasks",
    )


def task_item(task: "TaskInfo") -> Item:
    """Return one task with its result, the tail of its output, and its earlier failures."""
    fields = [
        ("task", str(task.task_id)),
        ("id", str(task.task_uuid)),
        ("task group id", str(task.task_group_id)),
        ("what", what_text(task)),
        ("state", str(task.state)),
        ("ended", ending_text(task)),
        ("attempt", str(task.attempt)),
        ("host", task.manager_name or ""),
        ("progress", _progress_text(task)),
        ("created", time_text(task.created_at)),
        ("started", time_text(task.started_at)),
        ("finished", time_text(task.finished_at)),
        ("time", elapsed_text(task.started_at, task.finished_at)),
        ("next attempt", time_text(task.next_attempt_at)),
        ("waits for", _parents_text(task.waits_for)),
        ("tried again", task.repetition or ""),
        *_detail_fields(task.detail or {}),
        *[("earlier failure", _failure_text(failure)) for failure in task.failures],
    ]
    shown = [(label, text) for label, text in fields if text]
    return Item(task.model_dump(mode="json"), shown, str(task.task_uuid))


def _progress_text(task: "TaskInfo") -> str:
    """Return how far it is, as in ``40% copy: file 3 of 7``."""
    found = task.progress
    if found is None:
        return ""
    known = "" if found.fraction is None else f"{100 * found.fraction:.0f}% "
    return (known + ": ".join(part for part in (found.stage, found.message) if part)).strip()


def _parents_text(count: int | None) -> str:
    return (
        "" if count is None else "1 task to succeed" if count == 1 else f"{count} tasks to succeed"
    )


def ending_text(task: "TaskInfo") -> str:
    """Return how a task ended, as in ``exit 0``, ``SIGKILL`` or ``timeout``; empty until it has."""
    if task.signal is not None:
        return _with_kind(signal_name(task.signal), task.kind, plain="signal")
    if task.exit_code is not None:
        return _with_kind(f"exit {task.exit_code}", task.kind, plain="exit_code")
    return task.kind or ""


def what_text(task: "TaskInfo") -> str:
    """Return the command, quoted for a shell, or ``module:function(arguments)``."""
    command, handler = task.spec.get("command"), task.spec.get("handler")
    if isinstance(command, list):
        words = shown_argv(task.spec)
        return shlex.join(words).encode(errors="backslashreplace").decode()
    return f"{handler}({_text(task.spec.get('arguments'))})"


def output_text(task: "TaskInfo") -> str:
    """Return the most useful line: the result of a handler, or the last line of output."""
    detail = task.detail or {}
    if detail.get("result") is not None:
        return _text(detail["result"])
    streams = ("stderr", "stdout") if task.state == "failed" else ("stdout", "stderr")
    for name in (*streams, "message"):
        if lines := str(detail.get(name) or "").strip().splitlines():
            return lines[-1]
    return ""


def _detail_fields(detail: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the ``detail`` of a report (see ``wire.TaskReport``), the most important fields first."""
    for key in ("result", "message", "traceback"):
        yield key, _text(detail.get(key))
    for key in ("stdout", "stderr"):
        text = str(detail.get(key) or "")
        written = int(detail.get(f"{key}_bytes") or 0)
        cut = written > len(kept_bytes(detail, key))
        yield f"{key} (the end of {written:,} bytes)" if cut else key, text.rstrip("\n")
    if usage := detail.get("usage"):
        yield "used", _usage_text(usage)
    if "worker" in detail:
        cores = ", ".join(str(core) for core in detail.get("cpus") or ())
        place = f"{detail['worker']}" + (f", on cores {cores}" if cores else "")
        if wider := detail.get("cpus_at_end"):
            place += f"; the task widened its mask to {', '.join(map(str, wider))}"
        yield "worker", place


def _usage_text(usage: Mapping[str, Any]) -> str:
    user, system = usage.get("user_seconds", 0.0), usage.get("system_seconds", 0.0)
    memory = usage.get("max_rss_bytes", 0) / 1e6
    return f"{user:.3f} s user, {system:.3f} s system, {memory:.1f} MB at most"


def _with_kind(text: str, kind: str | None, plain: str) -> str:
    return text if kind in (None, plain) else f"{text} ({kind})"


def _failure_text(failure: "TaskFailureInfo") -> str:
    how = failure.kind
    if failure.exit_code is not None:
        how += f", exit {failure.exit_code}"
    if failure.signal is not None:
        how += f", {signal_name(failure.signal)}"
    if failure.failure_count > 1:
        first = failure.first_attempt or failure.attempt
        return (
            f"attempts {first} to {failure.attempt}, {failure.failure_count} times, the last"
            f" {time_text(failure.failed_at)}: {how}"
        )
    return f"attempt {failure.attempt}, {time_text(failure.failed_at)}: {how}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.rstrip("\n") if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
