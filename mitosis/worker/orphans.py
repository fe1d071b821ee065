"""Reaps the orphans of a running task, which would stay zombies until it ends.

The worker is a child subreaper, so a process whose parent has ended becomes its child. An ended child
keeps its place in the process table until it is waited for.

While a command runs, every child but its leader is such an orphan; SIGCHLD wakes the worker's loop, so
nothing is spent while no process ends. While a handler runs, children that the handler started belong
to the handler, which waits for them itself: :class:`Births` knows them.
"""

import _posixsubprocess
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import FrameType
from typing import Any

_LOOK_SECONDS = 0.25
_STARTERS = (
    (os, "fork"),
    (os, "forkpty"),
    (os, "posix_spawn"),
    (os, "posix_spawnp"),
    (subprocess, "_fork_exec"),
    (_posixsubprocess, "fork_exec"),
)
"""Every way of Python to start a process ends in one of these."""


class ChildBell:
    """Has the end of a child wake the worker's poll. On while commands run, off for handlers."""

    def __init__(self) -> None:
        self._on = False

    def turn_on(self) -> None:
        if not self._on:
            signal.signal(signal.SIGCHLD, _do_nothing)
            self._on = True

    def turn_off(self) -> None:
        if self._on:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._on = False


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Let SIGCHLD reach the wakeup descriptor, which needs a handler."""


def reap_orphans_of(leader: int) -> None:
    """Reap every child that has ended, except ``leader``."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == leader:
            return
        os.waitpid(found.si_pid, 0)


class Births:
    """Knows which children this process has started itself, and reaps the others.

    A child that C code has started is not known. It is reaped only after it has been a zombie for a
    quarter of a second; C code that waits for its child gets its status before.
    """

    def __init__(self) -> None:
        """Watch the functions of Python that start processes."""
        self._known: set[int] = set()
        self._seen: set[int] = set()
        self._not_before = 0.0
        for module, name in _STARTERS:
            setattr(module, name, self._watched(getattr(module, name)))

    def forget(self) -> None:
        """Start a new task: it has no children."""
        self._known.clear()
        self._seen.clear()

    def reap_orphans(self) -> None:
        """Reap the orphans that were zombies at the last look too; looks four times a second."""
        now = time.monotonic()
        if now < self._not_before:
            return
        self._not_before = now + _LOOK_SECONDS
        zombies = self._zombies()
        for pid in zombies & self._seen:
            _reap(pid)
        self._seen = zombies

    def _zombies(self) -> set[int]:
        if not _any_child_ended():
            return set()
        return {pid for pid in _children() - self._known if _has_ended(pid)}

    def _watched(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(start)
        def started(*args: Any, **options: Any) -> Any:
            child = start(*args, **options)
            self._known.add(child[0] if isinstance(child, tuple) else child)
            return child

        return started


def _any_child_ended() -> bool:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):  # the task was faster
        os.waitpid(pid, os.WNOHANG)


def _children() -> set[int]:
    """Return the children of the main thread, to which the kernel gives orphans. Source: proc_pid_task(5)."""
    pid = os.getpid()
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123 - a hot path
        return {int(child) for child in file.read().split()}
