"""A handler module that makes signals come after the last bytecode and before the system call.

``LOSE_SIGTERM_IN`` says which poll gets SIGTERM there, once: that of the zygote, of an idle worker, or of a
worker with a command. The functions of Python that send a signal run its handler themselves, so C does it.
"""

import ctypes
import operator
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None)
_raise = getattr(_libc, "raise")
_zygote = os.getpid()
_real_poll = select.poll


def _in_c(*calls: Callable[[], Any]) -> Any:
    """Make the calls, with no bytecode in between; the result of the last."""
    return list(map(operator.call, calls))[-1]


class _Poll:
    def __init__(self) -> None:
        self._poll = _real_poll()
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poll, name)

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        wait = partial(self._poll.poll, milliseconds)
        if self._lost or os.environ.get("LOSE_SIGTERM_IN") != _place():
            return wait()
        self._lost = True
        found: list[tuple[int, int]] = _in_c(partial(_raise, signal.SIGTERM), wait)
        return found


def _place() -> str:
    if os.getpid() == _zygote:
        return "zygote"
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return "idle worker"
    return "worker with a command"


def sleep() -> None:
    """Sleep; the first alarm has come just before."""
    _in_c(partial(_libc.usleep, 1_000_000), partial(time.sleep, 600))


def sleep_deaf() -> None:
    """Sleep and ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def sleep_unreachable(note: str) -> None:
    """Sleep as code in C does that never returns to Python: no signal handler runs."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = subprocess.Popen(["sleep", "60"])
    Path(note).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(60)


select.poll = _Poll  # type: ignore[misc,assignment]
