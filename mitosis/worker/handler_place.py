"""The place of a handler: environment variables, working directory, standard streams; restored after it."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.task import TaskSpec
from mitosis.worker.environ import ProcessEnvironment
from mitosis.worker.output import MemoryOutput
from mitosis.worker.report import Ended

_HOME = "/"


class HandlerPlace:
    """Makes the place of each handler of a worker, one after the other."""

    def __init__(self, streams: tuple[MemoryOutput, MemoryOutput]) -> None:
        """``streams`` are stdout and stderr of the handlers."""
        self._streams = streams
        self._own_fds = tuple(os.dup(fd) for fd in (0, 1, 2))
        self._python_streams = sys.stdin, sys.stdout, sys.stderr
        self._text = [(stream.encoding, stream.errors) for stream in self._python_streams[1:]]
        self._environment = ProcessEnvironment()
        self.keeping_changes = self._environment.keeping_changes

    @contextmanager
    def of(
        self, spec: TaskSpec, variables: Mapping[str, str], folder: str
    ) -> Iterator[Ended | None]:
        """Yield None in the place of this task, or the end of a task whose place cannot be made."""
        for python_stream in self._python_streams[1:]:
            _by_line(python_stream)
        for stream, fd in zip(self._streams, (1, 2), strict=True):
            os.dup2(stream.fd, fd)
        try:
            yield self._enter(spec, variables, folder)
        finally:
            for python_stream in {sys.stdout, sys.stderr, *self._python_streams[1:]}:
                _flush(python_stream)
            for own, fd in zip(self._own_fds, (0, 1, 2), strict=True):
                os.dup2(own, fd)
            self._python_streams = (
                self._python_streams[0],
                _usable(self._python_streams[1], 1, *self._text[0]),
                _usable(self._python_streams[2], 2, *self._text[1]),
            )
            sys.stdin, sys.stdout, sys.stderr = self._python_streams
            sys.__stdin__, sys.__stdout__, sys.__stderr__ = self._python_streams  # type: ignore[misc,assignment]
            self._environment.leave()
            os.chdir(_HOME)

    def _enter(self, spec: TaskSpec, variables: Mapping[str, str], folder: str) -> Ended | None:
        folder = spec.working_directory or folder
        try:
            self._environment.enter(spec.environment, variables)
            os.chdir(folder)
        except ValueError as error:
            return Ended(kind=FailureKind.NOT_STARTED, message=f"environment: {error}")
        except OSError as error:
            message = f"working_directory {folder}: {error.strerror}"
            return Ended(kind=FailureKind.NOT_STARTED, message=message)
        return None


def _flush(stream: Any) -> None:
    """Flush a stream that the handler may have closed or replaced."""
    with contextlib.suppress(Exception):  # closed, replaced, or None
        stream.flush()


def _by_line(stream: TextIO) -> None:
    """Flush after each line, so that followers see what a handler prints."""
    if isinstance(stream, io.TextIOWrapper) and not (stream.closed or stream.line_buffering):
        stream.reconfigure(line_buffering=True)


def _usable(stream: TextIO, fd: int, encoding: str, errors: str | None) -> TextIO:
    """Return the stream, with its first encoding, or a new one if the handler closed it."""
    if stream is None:
        return stream
    if stream.closed:
        return open(fd, "w", buffering=1, encoding=encoding, errors=errors, closefd=False)
    if isinstance(stream, io.TextIOWrapper) and (stream.encoding, stream.errors) != (
        encoding,
        errors,
    ):
        stream.reconfigure(encoding=encoding, errors=errors)
    return stream
