"""What runs below a process, for tests that look for leftovers."""

import psutil


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below ``pid``. Taken while it lives, it identifies them after its death."""
    return psutil.Process(pid).children(recursive=True)


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a zombie that only waits to be reaped does not. Safe for pid reuse."""
    return [one for one in processes if one.is_running() and _state(one) != psutil.STATUS_ZOMBIE]


def _state(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE
