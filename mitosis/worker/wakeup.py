"""Wakes a poll for every signal.

CPython runs the Python handler of a signal between two bytecodes. A signal that comes after the last of
them and before the system call does not interrupt that call, so the handler would wait as long as the poll.
The handler in C also writes a byte to the wakeup descriptor, which ends the poll at once.
Source: Python documentation, ``signal.set_wakeup_fd`` and "Execution of Python signal handlers".
"""

import os
import signal


class SignalWakeup:
    """A descriptor that is readable after a signal with a Python handler; main thread only."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.turn_on()

    def turn_on(self) -> None:
        """Take the place of any other wakeup descriptor of this process."""
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def clear(self) -> None:
        """Make the descriptor wait for the next signal."""
        try:
            while len(os.read(self.fd, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Turn it off, as in a forked child that has its own."""
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._write_fd)
