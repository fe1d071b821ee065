"""Makes the three standard streams usable, even if they are closed or full.

A closed descriptor is opened on /dev/null before any other file is opened: that file would get its
number, and printed text would be written into it. A full disk is an error on standard output, where
results would be lost; on standard error it is ignored.
"""

import io
import os
import sys
from typing import Any, TextIO

from mitosis.contracts.errors import MitosisError

BUFFER_BYTES = 65_536


class StandardOutputLost(MitosisError):
    """Standard output cannot be written."""

    code = "output_lost"


class _Descriptor(io.FileIO):
    """Descriptor 1 or 2. It does not handle a closed pipe (EPIPE)."""

    def write(self, data: Any, /) -> int:
        """Write as FileIO does; after a failure, later writes go to /dev/null, so it is reported once.

        Empty writes do nothing: typer probes streams with them and ignores the error.

        Raises:
            StandardOutputLost: the descriptor is 1.
            BrokenPipeError: the reader has closed the pipe.
        """
        size = memoryview(data).nbytes
        if size == 0:
            return 0
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            redirect_to_null(self.fileno())
            if self.fileno() == 1:
                raise StandardOutputLost(
                    f"standard output cannot be written: {error.strerror}"
                ) from None
            return size


def open_standard_streams() -> None:
    """Make ``sys.stdin``, ``sys.stdout`` and ``sys.stderr`` usable, even where a descriptor is closed."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            redirect_to_null(descriptor)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
    sys.stdout = _text(1, sys.stdout)
    sys.stderr = _text(2, sys.stderr)


def redirect_to_null(descriptor: int) -> None:
    """Open /dev/null as this descriptor, for child processes too."""
    nowhere = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)
    if nowhere == descriptor:
        os.set_inheritable(nowhere, True)
    else:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def flush() -> None:
    """Flush both streams; a closed pipe, as in `mitosis doctor | head -1`, is no error.

    Raises:
        StandardOutputLost: standard output cannot be written, as on a full disk.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            redirect_to_null(stream.fileno())


def _text(descriptor: int, was: TextIO | None) -> TextIO:
    """Return a stream over the descriptor, with the encoding and buffering of Python's own.

    Python has none (None) for a descriptor that was closed.
    """
    raw = _Descriptor(descriptor, "w", closefd=False)
    unbuffered = was is not None and isinstance(was.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw, BUFFER_BYTES),
        encoding=was.encoding if was else "utf-8",
        errors=was.errors if was else "backslashreplace",
        line_buffering=bool(was and was.line_buffering),
        write_through=unbuffered,
    )
