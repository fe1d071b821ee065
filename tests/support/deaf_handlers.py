"""Handlers for tests of workers that read no messages while code in C runs."""

import os
import signal
import time


def note(path: str, number: int) -> None:
    """Write the number into the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{number}\n".encode())
    os.close(descriptor)


def work_then_wait_in_c(path: str, seconds: float) -> None:
    """Compute for so long, with turns for the worker, then :func:`wait_in_c`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    wait_in_c(path)


def wait_in_c(path: str) -> None:
    """Wait for the file, with no signal delivered, so that the worker gets no turn."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while not os.path.exists(path):  # noqa: PTH110 - nothing else is needed
        time.sleep(0.02)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
