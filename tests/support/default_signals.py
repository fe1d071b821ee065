"""A pytest plugin: signals mean in the tests what they mean on a terminal.

What a shell starts in the background, or under nohup, ignores SIGINT, SIGQUIT or SIGHUP, and so does
every program that it starts in turn: pressing Ctrl-C in a test would do nothing.
Source: POSIX, Shell Command Language 2.11; signal(7), "Signal dispositions" and execve.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

DEFAULTS: dict[signal.Signals, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


def pytest_configure(config: pytest.Config) -> None:
    for number, default in DEFAULTS.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
