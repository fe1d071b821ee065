"""Writes the output of ended tasks to standard output, and to files if requested: byte by byte.

A result holds the tail of each stream; what was read before, while the task ran, is in a file. What neither
has is missing: it is named, and the run does not end with status 0.
"""

import codecs
import heapq
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Annotated, Literal, Protocol, TextIO

import typer
from pydantic_core import to_json

from mitosis.cli.follow.display import Display
from mitosis.cli.follow.exit_statuses import RunExit
from mitosis.cli.rendering import printable
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.task import shown_argv
from mitosis.contracts.task_output import detail_of, kept_bytes

Stream = Literal["stdout", "stderr"]
_PIECE_BYTES = 1_048_576
_MOST_NAMED = 10
_JOBLOG = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"


class OutputLost(Exception):
    """The output of tasks cannot be written: the pipe is closed, or the disk is full."""

    def __init__(self, error: OSError) -> None:
        where = f"{error.filename}: " if error.filename is not None else ""
        super().__init__(f"{where}{error.strerror}")
        closed = isinstance(error, BrokenPipeError)
        self.status = RunExit.INTERRUPTED if closed else RunExit.OUTPUT_LOST
        """The exit status of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What to do with the output of tasks."""

    folder: Annotated[
        Path | None,
        typer.Option(
            "--keep-output",
            "-o",
            metavar="DIR",
            help="Write N.out and N.err for input N; DIR must not have any yet.",
        ),
    ] = None
    joblog: Annotated[
        Path | None,
        typer.Option("--joblog", metavar="FILE", help="Write one line per task, as GNU parallel."),
    ] = None
    in_order: Annotated[
        bool,
        typer.Option("--keep-order", "-k", help="Print the output in the order of the inputs."),
    ] = False
    tag_lines: Annotated[
        bool,
        typer.Option(
            "--tag-output", help="Print the number of the task, as in GROUP/TASK, before each line."
        ),
    ] = False
    silent: Annotated[bool, typer.Option("--silent", help="Do not print the output of tasks.")] = (
        False
    )

    def wanted(self, *, as_json: bool) -> bool:
        """Return whether the output of tasks goes anywhere."""
        return as_json or not self.silent or self.folder is not None


def check_output(options: OutputOptions) -> None:
    """Check the folder without creating it.

    Raises:
        InvalidRequest: it cannot be read, is not a folder, or has outputs of another run, of which some
            would remain beside the new ones.
    """
    if options.folder is not None:
        with _named("--keep-output", options.folder):
            if options.folder.exists():
                _check_no_outputs(options.folder)


def make_output(options: OutputOptions) -> None:
    """Create folder and file, so that a wrong name is found before any task runs.

    Raises:
        InvalidRequest: one of them cannot be created.
    """
    if options.folder is not None:
        with _named("--keep-output", options.folder):
            options.folder.mkdir(parents=True, exist_ok=True)
    if options.joblog is not None:
        with _named("--joblog", options.joblog):
            _write_file(options.joblog, [_JOBLOG.encode()])


@contextmanager
def _named(option: str, path: Path) -> Iterator[None]:
    """Turn an OSError into InvalidRequest; one without a file name, as of write(2), gets ``path``."""
    try:
        yield
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {error.filename or path}: {error.strerror}", option=option
        ) from None


def _check_no_outputs(folder: Path) -> None:
    for path in folder.iterdir():
        if re.fullmatch(r"\d+\.(out|err)", path.name, re.ASCII):
            raise InvalidRequest(
                f"{folder} already has outputs of another run, such as {path.name}",
                option="--keep-output",
                hint="use one folder per run, or remove them first",
            )


@dataclass(frozen=True, slots=True)
class Missing:
    """The bytes of one stream of one task that are not there."""

    task_id: int
    stream: str
    offset: int
    size: int

    def __str__(self) -> str:
        where = f"bytes {self.offset} to {self.offset + self.size - 1}"
        return f"task {self.task_id}: {self.size} bytes of {self.stream} are missing ({where})"


class StreamOutput:
    """One stream of an ended task: its beginning in a file, if it was read, and its kept tail."""

    def __init__(self, task: TaskInfo, stream: str, beginning: Path | None = None) -> None:
        self._task_id, self._stream, self._beginning = task.task_id, stream, beginning
        self._tail = kept_bytes(task.detail, stream)
        total = (task.detail or {}).get(f"{stream}_bytes")
        self._tail_at = max(0, total - len(self._tail)) if isinstance(total, int) else 0
        self._begun = beginning.stat().st_size if beginning is not None else 0

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes that there are, in order.

        Raises:
            OSError: the file cannot be read.
        """
        if self._beginning is not None:
            with self._beginning.open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    yield piece
        yield self._tail[max(0, self._begun - self._tail_at) :]

    def whole(self) -> bytes:
        return b"".join(self.pieces())

    @property
    def missing(self) -> Missing | None:
        """The gap between the beginning and the tail."""
        if self._begun >= self._tail_at:
            return None
        return Missing(self._task_id, self._stream, self._begun, self._tail_at - self._begun)


def is_cut(task: TaskInfo) -> bool:
    """Return whether a result does not hold all output of its task."""
    return any(StreamOutput(task, stream).missing for stream in ("stdout", "stderr"))


class Beginnings(Protocol):
    """What was read of the output of tasks before they ended."""

    def beginning(self, task: TaskInfo, stream: Stream) -> Path | None: ...

    def forget(self, task: TaskInfo) -> None: ...


class TaskOutput:
    """Writes the output of tasks one after the other; the bytes of two tasks are never mixed.

    Nothing is added: output that does not end with a newline is followed directly by that of the next task.
    """

    def __init__(
        self,
        display: Display,
        options: OutputOptions,
        *,
        as_json: bool = False,
        beginnings: Beginnings | None = None,
    ) -> None:
        """``as_json``: standard output gets one line of JSON per result, and no task output."""
        self._display = display
        self._options = options
        self._as_json = as_json
        self._beginnings = beginnings
        self._log = options.joblog.open("ab", buffering=0) if options.joblog is not None else None
        self._later: list[tuple[int, int, TaskInfo]] = []
        """With ``in_order``: a heap of tasks that ended before a task with a lower number."""
        self._next = 1
        self.missing: list[Missing] = []

    def add(self, number: int, task: TaskInfo) -> None:
        """Write one ended task, with the number of its input.

        Raises:
            OutputLost: it cannot be written.
        """
        try:
            self._into_files(number, task)
            self._print_when_due(number, task)
        except OSError as error:
            raise OutputLost(error) from None

    def finish(self) -> None:
        """Write the tasks that are left, and name what is missing.

        Raises:
            OutputLost: it cannot be written.
        """
        try:
            while self._later:
                self._print(*heapq.heappop(self._later)[::2])
        except OSError as error:
            raise OutputLost(error) from None
        for gap in self.missing[:_MOST_NAMED]:
            self._display.say(str(gap))
        if len(self.missing) > _MOST_NAMED:
            size = sum(gap.size for gap in self.missing[_MOST_NAMED:])
            count = len(self.missing) - _MOST_NAMED
            self._display.say(f"and {size} bytes of {count} more outputs are missing")

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _outputs(self, task: TaskInfo) -> tuple[StreamOutput, StreamOutput]:
        find = self._beginnings.beginning if self._beginnings is not None else lambda *_: None
        return (
            StreamOutput(task, "stdout", find(task, "stdout")),
            StreamOutput(task, "stderr", find(task, "stderr")),
        )

    def _into_files(self, number: int, task: TaskInfo) -> None:
        if self._options.folder is not None:
            for output, kind in zip(self._outputs(task), ("out", "err"), strict=True):
                _write_file(self._options.folder / f"{number}.{kind}", output.pieces())
        if self._log is not None:
            _append_all_or_nothing(self._log, joblog_line(number, task).encode())

    def _print_when_due(self, number: int, task: TaskInfo) -> None:
        if not self._options.in_order:
            self._print(number, task)
            return
        heapq.heappush(self._later, (number, next(_ticket), task))
        while self._later and self._later[0][0] == self._next:
            self._print(*heapq.heappop(self._later)[::2])
            self._next += 1

    def _print(self, number: int, task: TaskInfo) -> None:
        out, err = outputs = self._outputs(task)
        if self._as_json:
            print_json_line(
                {"kind": "result", "number": number, "result": _with_all(task, outputs)}
            )
        elif not self._options.silent:
            self._to(sys.stdout, out, task.task_id)
            self._to(sys.stderr, err, task.task_id)
        if self._options.wanted(as_json=self._as_json):
            self.missing += [gap for output in outputs if (gap := output.missing) is not None]
        if self._beginnings is not None:
            self._beginnings.forget(task)

    def _to(self, stream: TextIO, output: StreamOutput, task_id: int) -> None:
        """Write the bytes as they are; with ``tag_lines`` line by line, the last one completed.

        On a terminal, control characters are escaped.
        """
        pieces = output.pieces()
        if self._options.tag_lines:
            pieces = (b"%d\t%s" % (task_id, line) for line in _lines(pieces))
        if stream.isatty():
            pieces = _escaped(pieces, stream.encoding)
        for piece in pieces:
            if piece:
                self._display.clear()
                _write(stream, piece)


def _with_all(task: TaskInfo, outputs: Sequence[StreamOutput]) -> TaskInfo:
    """Return the task with its whole output in its detail, in the form of ``contracts.task_output``."""
    detail = dict(task.detail or {})
    for output, name in zip(outputs, ("stdout", "stderr"), strict=True):
        data = output.whole()
        if len(data) > len(kept_bytes(detail, name)):
            detail |= detail_of(name, data)
    return task if detail == (task.detail or {}) else task.model_copy(update={"detail": detail})


def print_json_line(document: dict[str, object]) -> None:
    """Write one line of JSON to standard output.

    Raises:
        OSError: it cannot be written.
    """
    _write(sys.stdout, to_json(document) + b"\n")


def _write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a whole file; remove it if that fails.

    Raises:
        OSError: names the file.
    """
    try:
        with path.open("wb") as file:
            file.writelines(pieces)
    except OSError as error:
        if error.filename is None and path.is_file():  # it was created, and is not a device
            path.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


def _append_all_or_nothing(log: FileIO, line: bytes) -> None:
    """Append a whole line; truncate what was written of it if that fails.

    Raises:
        OSError: names the file.
    """
    end = log.seek(0, os.SEEK_END) if log.seekable() else None
    try:
        rest = line
        while rest:
            rest = rest[log.write(rest) :]
    except OSError as error:
        if end is not None:
            with suppress(OSError):  # a device has no end
                log.truncate(end)
        raise OSError(error.errno, error.strerror, log.name) from None


def _write(stream: TextIO, data: bytes) -> None:
    """Write all data past Python's buffer, so that a failure is raised here."""
    while data:
        data = data[os.write(stream.fileno(), data) :]


def _escaped(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield UTF-8 text for a terminal, with control characters escaped; a character may be split."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        yield printable(decoder.decode(piece)).encode(encoding, "backslashreplace")
    yield printable(decoder.decode(b"", final=True)).encode(encoding, "backslashreplace")


_ticket = count()
"""A unique number, so that the heap never compares tasks."""


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Split at newlines only, a form feed does not end a line; complete the last line."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest + b"\n"


def joblog_line(number: int, task: TaskInfo) -> str:
    """Return a line in the format of GNU parallel's --joblog; Receive counts bytes of standard output."""
    started, finished = task.started_at, task.finished_at
    took = (finished - started).total_seconds() if started and finished else 0.0
    argv = shown_argv(task.spec)
    fields = (
        number,
        task.manager_name or "-",
        f"{started.timestamp():.3f}" if started else "0.000",
        f"{took:10.3f}",
        0,
        (task.detail or {}).get("stdout_bytes", 0),
        task.exit_code if task.exit_code is not None else -1 if task.signal is None else 0,
        task.signal or 0,
        shlex.join(argv).replace("\n", "\\n").encode(errors="backslashreplace").decode(),
    )
    return "\t".join(map(str, fields)) + "\n"
