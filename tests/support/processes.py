"""What runs below a process, for tests that look for leftovers."""

from collections.abc import Iterable
from contextlib import suppress

import psutil

ENDED = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below ``pid``. Taken while it lives, it identifies them after its death."""
    return psutil.Process(pid).children(recursive=True)


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a zombie that only waits to be reaped does not. Safe for pid reuse."""
    return [one for one in processes if one.is_running() and _state(one) not in ENDED]


def owners(pids: Iterable[int]) -> set[int]:
    """The effective user ids of those of ``pids`` that still run; a list of pids is soon old."""
    found = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.add(psutil.Process(pid).uids().effective)
    return found


def command_lines(processes: Iterable[psutil.Process]) -> list[str]:
    """The command lines of those that still run."""
    found = []
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            found.append(" ".join(one.cmdline()))
    return found


def zombies(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that ended and that nobody has reaped."""
    return [one for one in processes if one.is_running() and _state(one) == psutil.STATUS_ZOMBIE]


def _state(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD
