"""Signal dispositions and masks that must not pass from the agent's parents to tasks.

exec keeps a blocked mask and ignored signals (execve(2)), so a program under ``nohup`` would give its own
to every task. Handled signals become default at an exec.
"""

import signal
from types import FrameType

_OF_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Ignored by every Python process, and default again in its child processes (subprocess, restore_signals)."""


def default_signals() -> None:
    """Unblock all signals, and set those that a parent ignored to their default."""
    for number in ignored_signals():
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def default_in_children() -> None:
    """Unblock all signals, and go on ignoring what a parent ignored without passing that to children."""
    for number in ignored_signals():
        handler = signal.SIG_DFL if number == signal.SIGCHLD else _do_nothing
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def ignored_signals() -> list[int]:
    """Return the ignored signals without those that Python itself ignores."""
    numbers = signal.valid_signals() - _OF_PYTHON
    return [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass
