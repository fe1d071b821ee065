"""Groups failed tasks by reason: one row per reason, the most frequent first. Pure functions.

Two failures have the same reason if they ended in the same way and the last lines of their stderr are
equal after numbers, addresses and paths are masked.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from unicodedata import east_asian_width

from mitosis.cli.rendering import one_line
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.outcome import FailureKind, signal_name

_MASKS = (
    (re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b"), "#"),
    (re.compile(r"(?<![\w])/[^\s:'\"]+"), "/…"),
    (re.compile(r"\d+"), "#"),
)
TASKS_SHOWN = 3
LINE_SHOWN = 40
REASONS_SHOWN = 12
WIDE = 120
"""Hosts are shown from this number of columns on."""


@dataclass(slots=True)
class Reason:
    """One row: how the tasks ended, an example of their last line, their numbers and hosts."""

    ending: str
    line: str
    tasks: list[int] = field(default_factory=list)
    """Numbers of the tasks, as `mitosis logs` takes them."""
    inputs: list[int] = field(default_factory=list)
    """Numbers of their inputs where known, as in ``{#}`` and the files of -o."""
    hosts: dict[str, int] = field(default_factory=dict)

    def hosts_text(self) -> str:
        return " ".join(f"{name} {count}x" for name, count in self.hosts.items())


class Failures:
    """Collects failed tasks; memory grows with the number of reasons and task ids."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str], Reason] = {}

    def add(self, task: TaskInfo, number: int | None = None) -> None:
        """Add a task if it failed, with the number of its input where known."""
        if task.state is not TaskState.FAILED:
            return
        ending, line = ending_of(task), last_line(task)
        reason = self._reasons.setdefault((ending, masked(line)), Reason(ending, line))
        reason.tasks.append(task.task_id)
        if number is not None:
            reason.inputs.append(number)
        if task.manager_name:
            reason.hosts[task.manager_name] = reason.hosts.get(task.manager_name, 0) + 1

    def in_one_line(self) -> str:
        """Return ``9x exit 1: cannot read …   1x timeout``, the most frequent first; or nothing."""
        parts: list[str] = []
        for reason in self.rows():
            line = f": {reason.line}" if reason.line and not parts else ""
            parts.append(f"{len(reason.tasks)}x {reason.ending}{_cut(line, LINE_SHOWN)}")
        return "   ".join(parts)

    def rows(self) -> Sequence[Reason]:
        return sorted(self._reasons.values(), key=lambda reason: -len(reason.tasks))


def ending_of(task: TaskInfo) -> str:
    """Return how a task ended, as in ``exit 1``, ``SIGSEGV``, ``timeout`` or ``out of memory``."""
    if task.kind == FailureKind.EXIT_CODE and task.exit_code is not None:
        return f"exit {task.exit_code}"
    if task.kind == FailureKind.SIGNAL and task.signal is not None:
        return signal_name(task.signal)
    return (task.kind or "failed").replace("_", " ")


def last_line(task: TaskInfo) -> str:
    """Return the last line of stderr; without one, the message of the failure, except for exit codes."""
    detail = task.detail or {}
    lines = [line.strip() for line in str(detail.get("stderr") or "").splitlines()]
    text = next((line for line in reversed(lines) if line), "")
    if text or task.kind == FailureKind.EXIT_CODE:
        return text
    return str(detail.get("message") or "")


def masked(line: str) -> str:
    for pattern, mask in _MASKS:
        line = pattern.sub(mask, line)
    return line


def table(reasons: Iterable[Reason], width: int) -> list[str]:
    """Return the rows as lines of at most ``width`` columns, with hosts if they fit and inputs if known.

    After :data:`REASONS_SHOWN` rows, one line counts the rest.
    """
    reasons = list(reasons)
    shown = reasons[:REASONS_SHOWN]
    cells = {
        "n": [str(len(one.tasks)) for one in shown],
        "reason": [one.ending for one in shown],
        "last line of stderr": [one.line for one in shown],
        "hosts": [one.hosts_text() for one in shown] if width >= WIDE else [],
        "inputs": [_first(one.inputs) for one in shown] if any(r.inputs for r in shown) else [],
        "tasks": [_first(one.tasks) for one in shown],
    }
    head = [name for name, column in cells.items() if column]
    rows = [list(row) for row in zip(*(cells[name] for name in head), strict=True)]
    lines = _aligned([head, *rows], width) if rows else []
    if more := reasons[REASONS_SHOWN:]:
        tasks = sum(len(reason.tasks) for reason in more)
        lines.append(f"… and {tasks} tasks with {len(more)} other reasons")
    return lines


def _first(numbers: Sequence[int]) -> str:
    shown = " ".join(map(str, numbers[:TASKS_SHOWN]))
    more = len(numbers) - TASKS_SHOWN
    return f"{shown} +{more}" if more > 0 else shown


def _aligned(rows: list[list[str]], width: int) -> list[str]:
    flexible = 2
    sizes = [max(columns(row[i]) for row in rows) for i in range(len(rows[0]))]
    others = sum(size for i, size in enumerate(sizes) if i != flexible) + 3 * (len(sizes) - 1)
    sizes[flexible] = max(10, min(sizes[flexible], width - others))
    lines = []
    for row in rows:
        cells = [_padded(cell, size) for cell, size in zip(row, sizes, strict=True)]
        lines.append("   ".join(cells).rstrip())
    lines.insert(1, "─" * min(width, sum(sizes) + 3 * (len(sizes) - 1)))
    return lines


def _padded(text: str, size: int) -> str:
    cut = _cut(text, size)
    return cut + " " * (size - columns(cut))


def _cut(text: str, size: int) -> str:
    """Cut text to ``size`` columns of a terminal and escape control characters."""
    text = one_line(text)
    if columns(text) <= size:
        return text
    while columns(text) >= size:
        text = text[:-1]
    return text + "…"


def columns(text: str) -> int:
    """Return the width on a terminal: two columns for wide characters (Unicode annex 11)."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
