"""What runs below a process, for tests that look for leftovers."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import psutil

T = TypeVar("T")
ENDED = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below ``pid``. Taken while it lives, it identifies them after its death."""
    return psutil.Process(pid).children(recursive=True)


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a zombie that only waits to be reaped does not. Safe for pid reuse."""
    return [one for one in processes if one.is_running() and _state(one) not in ENDED]


def read(processes: Iterable[psutil.Process], what: Callable[[psutil.Process], T]) -> list[T]:
    """What each says of itself, as in ``read(below, Process.name)``; those that ended say nothing."""
    found = []
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            found.append(what(one))
    return found


def with_pids(pids: Iterable[int]) -> list[psutil.Process]:
    """Those of ``pids`` that still run; a list of pids is soon old."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def owner(process: psutil.Process) -> int:
    """Its effective user id."""
    return int(process.uids().effective)


def command_line(process: psutil.Process) -> str:
    """Its arguments, joined by spaces."""
    return " ".join(process.cmdline())


def zombies(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that ended and that nobody has reaped."""
    return [one for one in processes if one.is_running() and _state(one) == psutil.STATUS_ZOMBIE]


def _state(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD
