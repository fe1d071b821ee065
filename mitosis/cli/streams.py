"""The three standard streams of a `mitosis` process, closed or full ones too. Not what is written to them.

A descriptor that is closed is opened on /dev/null before anything else opens a file: that file would get
its number, and whatever is printed would end in it. A disk that is full is an error that the command
reports where its results are lost (standard output), and no reason to stop where only words to people
are (standard error).
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
    """Descriptor 1 or 2. Who does not read any more (EPIPE) is not its business."""

    def write(self, data: Any, /) -> int:
        """As FileIO's; after a failure all that is written later goes nowhere, so it is told once.

        No bytes are no write: typer tries streams with them, and swallows what that raises.

        Raises:
            StandardOutputLost: the descriptor is 1.
            BrokenPipeError: nobody reads.
        """
        size = memoryview(data).nbytes
        if size == 0:
            return 0
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            send_nowhere(self.fileno())
            if self.fileno() == 1:
                raise StandardOutputLost(
                    f"standard output cannot be written: {error.strerror}"
                ) from None
            return size


def stand_up() -> None:
    """Make ``sys.stdin``, ``sys.stdout`` and ``sys.stderr`` usable, whatever the process was given."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            send_nowhere(descriptor)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = _text(1, sys.stdout)
    sys.stderr = _text(2, sys.stderr)


def send_nowhere(descriptor: int) -> None:
    """Let it be /dev/null, in child processes too."""
    nowhere = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)
    if nowhere == descriptor:
        os.set_inheritable(nowhere, True)
    else:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def flush() -> None:
    """Write what is left; a reader that has gone away, as in `mitosis doctor | head -1`, is no error.

    Raises:
        StandardOutputLost: the disk is full, say.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            send_nowhere(stream.fileno())


def _text(descriptor: int, was: TextIO | None) -> TextIO:
    """A stream over the descriptor, with the encoding and buffering of the one that Python made.

    Python makes none (None) for a descriptor that was closed.
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
