"""Where the output of tasks goes: to our own standard output as they end, and into files if asked for.

Bounded like the results themselves: of a task that writes more than its tail, the tail is there.
"""

import os
import sys
from pathlib import Path

from mitosis.cli.run.display import Display
from mitosis.contracts.http import TaskInfo


class TaskOutput:
    """Writes the output of one task after the other; whole tasks, never mixed lines."""

    def __init__(self, display: Display, *, keep_in: Path | None, tag: bool, silent: bool) -> None:
        """``keep_in``: a folder, made here, that gets ``TASK.out`` and ``TASK.err`` of every task."""
        self._display = display
        self._keep_in = keep_in
        self._tag = tag
        self._silent = silent
        if keep_in is not None:
            keep_in.mkdir(parents=True, exist_ok=True)

    def write(self, task: TaskInfo) -> None:
        detail = task.detail or {}
        out, err = str(detail.get("stdout") or ""), str(detail.get("stderr") or "")
        if self._keep_in is not None:
            for text, kind in ((out, "out"), (err, "err")):
                path = self._keep_in / f"{task.task_id}.{kind}"
                path.write_text(text, errors="surrogateescape")
        if not self._silent and (out or err):
            self._display.clear()
            self._to(sys.stdout, out, task.task_id)
            self._to(sys.stderr, err, task.task_id)

    def _to(self, stream: object, text: str, task_id: int) -> None:
        if not text:
            return
        lines = text if text.endswith("\n") else f"{text}\n"
        if self._tag:
            lines = "".join(f"{task_id}\t{line}" for line in lines.splitlines(keepends=True))
        descriptor = stream.fileno()  # type: ignore[attr-defined]
        data = lines.encode(errors="surrogateescape")
        while data:
            data = data[os.write(descriptor, data) :]
