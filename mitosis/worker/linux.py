"""Linux calls that Python 3.11 lacks, by ctypes. Each raises OSError."""

import ctypes
import os
import signal

_libc = ctypes.CDLL(None, use_errno=True)
_off_t = ctypes.c_int64
_libc.fallocate64.argtypes = [ctypes.c_int, ctypes.c_int, _off_t, _off_t]

# Source: linux/prctl.h, linux/falloc.h
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_FALLOC_FL_KEEP_SIZE = 0x01
_FALLOC_FL_PUNCH_HOLE = 0x02


def become_subreaper() -> None:
    """Adopt orphaned descendants as children. Kept by exec, not by fork. Source: prctl(2)."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Get this signal when the thread that forked this process ends; now if ``parent`` has ended."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0))
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def name_process(name: str) -> None:
    """Set the name that ``ps -o comm`` and ``top`` show; cut at 15 bytes. Source: prctl(2), PR_SET_NAME."""
    _check(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0))


def free_file_start(fd: int, end: int) -> None:
    """Free the memory of bytes 0 to ``end``; size and offsets stay. Source: fallocate(2)."""
    _check(_libc.fallocate64(fd, _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE, 0, end))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
