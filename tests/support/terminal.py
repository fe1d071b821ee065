"""A program on a pseudo-terminal of a given size; what it wrote, as it came."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self


class Terminal:
    """One program whose standard input, output and error are a terminal of ``columns`` by 24."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, columns: int) -> None:
        self._controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            argv,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={"TERM": "xterm", **env},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread
        )
        os.close(terminal)
        self.text = ""

    def press(self, keys: str) -> None:
        """Keys, as ``\\x03`` for Ctrl-C: the terminal itself sends the signal."""
        os.write(self._controller, keys.encode())

    def read_until(self, words: str, timeout: float = 60.0) -> str:
        """Everything so far once ``words`` have come.

        Raises:
            AssertionError: they did not come; shows what did.
        """
        deadline = time.monotonic() + timeout
        while words not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, self.text
            assert self._read(left), f"it ended: {self.text}"
        return self.text

    def end(self, timeout: float = 60.0) -> int:
        """Read to the end of the program; its exit status."""
        while self._read(timeout):
            pass
        return self.process.wait(timeout)

    def _read(self, timeout: float) -> bool:
        if not select.select([self._controller], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._controller, 65_536)
        except OSError:  # EIO: the last one that had the terminal open is gone
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._controller)
