"""Prints live output for `mitosis logs -f`: of one task unchanged, of many tasks line by line.

Standard output has only the bytes of the tasks; headings go to standard error. On a terminal, control
characters of tasks are escaped.
"""

import codecs
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import typer

from mitosis.cli.rendering import printable
from mitosis.cli.task.view import ending_text

if TYPE_CHECKING:
    from mitosis.contracts.following import OutputEvent
    from mitosis.contracts.http import TaskInfo

LONGEST_LINE_BYTES = 65_536
"""Longer lines are printed in pieces."""


class Sink(Protocol):
    def write(self, data: bytes, stream: str = ...) -> None:
        """Write bytes of one stream; a character may be split between two calls for the same stream."""

    def flush(self) -> None: ...

    def begin_line(self) -> None:
        """Begin a new line for a heading, where both are shown together."""


class StandardOutput:
    """Writes bytes unchanged; on a terminal, text with control characters escaped."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders: defaultdict[str, codecs.IncrementalDecoder] = defaultdict(
            lambda: decoder("replace")
        )

    def write(self, data: bytes, stream: str = "") -> None:
        if self._terminal:
            sys.stdout.write(printable(self._decoders[stream].decode(data)))
        else:
            sys.stdout.buffer.write(data)

    def flush(self) -> None:
        sys.stdout.flush()

    def begin_line(self) -> None:
        if self._terminal:
            sys.stdout.write("\n")


class OneTask:
    """Prints the output of one task unchanged, with a heading where the stream or the attempt changes."""

    def __init__(self, sink: Sink, streams: Iterable[str]) -> None:
        self._sink = sink
        self._streams = set(streams)
        self._heading = ("", 0)
        self._at_line_start = True

    def show(self, event: "OutputEvent") -> None:
        match event.kind:
            case "attempt":
                self._say(attempt_text(event))
            case "output" if event.stream in self._streams and event.data:
                if self._heading != (heading := (event.stream or "", event.attempt or 0)):
                    self._heading = heading
                    self._say(
                        f"==> task {event.task_id}, attempt {event.attempt}: {event.stream} <=="
                    )
                if event.skipped:
                    self._say(skipped_text(event))
                self._sink.write(event.data, event.stream or "")
                self._sink.flush()
                self._at_line_start = event.data.endswith(b"\n")
            case "result" if event.result is not None:
                self._say(result_text(event.result))

    def _say(self, text: str) -> None:
        if not self._at_line_start:
            self._sink.begin_line()
            self._at_line_start = True
        self._sink.flush()
        typer.echo(text, err=True)


class ManyTasks:
    """Prints whole lines after the number of the task; ``!`` follows it for standard error."""

    def __init__(self, sink: Sink, streams: Iterable[str], *, only_failed: bool) -> None:
        self._sink = sink
        self._streams = set(streams)
        self._only_failed = only_failed
        self._partial: dict[tuple[int, str], bytes] = {}
        self._attempts: dict[int, int] = {}

    def show(self, event: "OutputEvent") -> None:
        task_id, stream = event.task_id or 0, event.stream or ""
        match event.kind:
            case "output" if stream in self._streams and event.data:
                self._begin(task_id, event.attempt or 0)
                if event.skipped:
                    typer.echo(f"{task_id}: {skipped_text(event)}", err=True)
                self._lines(task_id, stream, event.data)
            case "result" if event.result is not None:
                self._end(task_id, event.result)

    def _begin(self, task_id: int, attempt: int) -> None:
        """Begin an attempt: print the unfinished line of the one before, then a heading."""
        before = self._attempts.get(task_id, attempt)
        self._attempts[task_id] = attempt
        if attempt == before:
            return
        self._flush(task_id, shown=not self._only_failed)
        if not self._only_failed:
            typer.echo(f"==> task {task_id}, attempt {attempt} <==", err=True)

    def _lines(self, task_id: int, stream: str, data: bytes) -> None:
        key = (task_id, stream)
        *lines, rest = (self._partial.pop(key, b"") + data).split(b"\n")
        if len(rest) > LONGEST_LINE_BYTES and not self._only_failed:
            lines, rest = [*lines, rest], b""
        if self._only_failed:  # known only at the end: keep a tail of bounded size
            self._partial[key] = b"\n".join([*lines, rest])[-LONGEST_LINE_BYTES:]
            return
        self._print(task_id, stream, lines)
        if rest:
            self._partial[key] = rest

    def _end(self, task_id: int, task: "TaskInfo") -> None:
        shown = not self._only_failed or task.state == "failed"
        self._attempts.pop(task_id, None)
        self._flush(task_id, shown=shown)
        if shown:
            typer.echo(result_text(task), err=True)

    def _flush(self, task_id: int, *, shown: bool) -> None:
        for stream in ("stdout", "stderr"):
            rest = self._partial.pop((task_id, stream), b"")
            if rest and shown:
                self._print(task_id, stream, rest.removesuffix(b"\n").split(b"\n"))

    def _print(self, task_id: int, stream: str, lines: Iterable[bytes]) -> None:
        mark = "!" if stream == "stderr" else "|"
        for line in lines:
            self._sink.write(f"{task_id}{mark} ".encode() + line + b"\n")
        self._sink.flush()


def attempt_text(event: "OutputEvent") -> str:
    """Return ``==> task 7, attempt 2: running on host-1 <==``."""
    claimed = event.state == "ready" and event.manager_name
    where = f" on {event.manager_name}" if event.manager_name else ""
    why = f", {event.reason}" if event.reason else ""
    number = f", attempt {event.attempt}" if event.attempt else ""
    return f"==> task {event.task_id}{number}: {'about to start' if claimed else event.state}{where}{why} <=="


def skipped_text(event: "OutputEvent") -> str:
    return f"[… {event.skipped} bytes skipped]"


def result_text(task: "TaskInfo") -> str:
    """Return ``==> task 7: failed, exit 3 <==``."""
    how = ", ".join(filter(None, [str(task.state), ending_text(task)]))
    return f"==> task {task.task_id}: {how} <=="
