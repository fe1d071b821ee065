"""Writes the output of ended tasks to standard output, and to files if requested.

Only the output stored with a result is written: for a task that wrote more, this is its tail, and the
end of the run reports how many tasks that were.
"""

import heapq
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Annotated, TextIO

import msgspec
import typer
from pydantic_core import to_json

from mitosis.cli.follow.display import Display
from mitosis.cli.follow.exit_statuses import RunExit
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.task import TaskSpec, command_argv
from mitosis.contracts.task_output import kept_bytes

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
            _write_file(options.joblog, _JOBLOG.encode())


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


class TaskOutput:
    """Writes the output of tasks one after the other; lines of two tasks are never mixed."""

    def __init__(self, display: Display, options: OutputOptions, *, as_json: bool = False) -> None:
        """``as_json``: standard output gets one line of JSON per result, and no task output."""
        self._display = display
        self._options = options
        self._as_json = as_json
        self._log = options.joblog.open("ab", buffering=0) if options.joblog is not None else None
        self._later: list[tuple[int, int, TaskInfo]] = []
        """With ``in_order``: a heap of tasks that ended before a task with a lower number."""
        self._next = 1
        self._cut = 0

    def add(self, number: int, task: TaskInfo) -> None:
        """Write one ended task, with the number of its input.

        Raises:
            OutputLost: it cannot be written.
        """
        detail = task.detail or {}
        for stream in ("stdout", "stderr"):
            total = detail.get(f"{stream}_bytes")
            if isinstance(total, int) and total > len(kept_bytes(detail, stream)):
                self._cut += 1
                break
        try:
            self._into_files(number, task)
            self._print_when_due(number, task)
        except OSError as error:
            raise OutputLost(error) from None

    def finish(self) -> None:
        """Write the tasks that are left, and report outputs that were cut.

        Raises:
            OutputLost: it cannot be written.
        """
        try:
            while self._later:
                self._print(*heapq.heappop(self._later)[::2])
        except OSError as error:
            raise OutputLost(error) from None
        if self._cut:
            count = "1 task" if self._cut == 1 else f"{self._cut} tasks"
            self._display.say(
                f"{count} wrote more output than is stored: only the tail is here;"
                " write large outputs into files"
            )

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _into_files(self, number: int, task: TaskInfo) -> None:
        if self._options.folder is not None:
            for stream, kind in (("stdout", "out"), ("stderr", "err")):
                path = self._options.folder / f"{number}.{kind}"
                _write_file(path, kept_bytes(task.detail, stream))
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
        if self._as_json:
            print_json_line({"kind": "result", "number": number, "result": task})
            return
        out, err = (kept_bytes(task.detail, stream) for stream in ("stdout", "stderr"))
        if not self._options.silent and (out or err):
            self._display.clear()
            self._to(sys.stdout, out, task.task_id)
            self._to(sys.stderr, err, task.task_id)

    def _to(self, stream: TextIO, data: bytes, task_id: int) -> None:
        if not data:
            return
        lines = data if data.endswith(b"\n") else data + b"\n"
        if self._options.tag_lines:
            lines = b"".join(b"%d\t%s" % (task_id, line) for line in _lines(lines))
        _write(stream, lines)


def print_json_line(document: dict[str, object]) -> None:
    """Write one line of JSON to standard output.

    Raises:
        OSError: it cannot be written.
    """
    _write(sys.stdout, to_json(document) + b"\n")


def _write_file(path: Path, data: bytes) -> None:
    """Write a whole file; remove it if that fails.

    Raises:
        OSError: names the file.
    """
    try:
        path.write_bytes(data)
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


_ticket = count()
"""A unique number, so that the heap never compares tasks."""


def _lines(data: bytes) -> Iterator[bytes]:
    """Split at newlines only; a form feed does not end a line."""
    return (line + b"\n" for line in data.removesuffix(b"\n").split(b"\n"))


def joblog_line(number: int, task: TaskInfo) -> str:
    """Return a line in the format of GNU parallel's --joblog; Receive counts bytes of standard output."""
    started, finished = task.started_at, task.finished_at
    took = (finished - started).total_seconds() if started and finished else 0.0
    argv = command_argv(msgspec.convert(task.spec, TaskSpec))
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
