"""Reads attributes of a process for which Python has no function: what prctl(2) and others have set."""

import ctypes
import os
import platform

_libc = ctypes.CDLL(None, use_errno=True)
_BYTES = 8
"""Of the longest answer."""
_PR_GET_PDEATHSIG, _PR_GET_TSC, _PR_GET_CHILD_SUBREAPER = 2, 25, 37
"""prctl(2) writes these to memory. Source: the kernel's uapi header of prctl(2), as for those that follow."""
_RETURNED_BY_PRCTL = {
    "PR_GET_DUMPABLE": 3,
    "PR_GET_SECUREBITS": 27,
    "PR_GET_TIMERSLACK": 30,
    "PR_MCE_KILL_GET": 34,
    "PR_GET_THP_DISABLE": 42,
    "PR_GET_IO_FLUSHER": 58,
    "PR_GET_MDWE": 66,
    "PR_GET_MEMORY_MERGE": 68,
}
"""Those that a kernel does not know are -1 each time."""
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(platform.machine())
"""The C library has no function for these. Source: syscalls(2)."""
_IOPRIO_WHO_PROCESS = 1


class KernelAttributes:
    """Reads scheduling policy, I/O priority, memory policy, adjustments and what prctl(2) sets."""

    def __init__(self) -> None:
        """Open the files that are read each time."""
        self._value = ctypes.create_string_buffer(_BYTES)
        self._oom_fd = os.open("/proc/self/oom_score_adj", os.O_RDONLY | os.O_CLOEXEC)
        self._core_fd = open_if_there("/proc/self/coredump_filter")

    def read(self) -> tuple[object, ...]:
        """Return the values of those that only the process itself can set.

        Those of two moments are equal if nothing has changed.
        """
        value, prctl = self._value, _libc.prctl
        written = []
        for get in (_PR_GET_PDEATHSIG, _PR_GET_TSC, _PR_GET_CHILD_SUBREAPER):
            prctl(get, value, 0, 0, 0)
            written.append(value.raw[:4])
        flags = [prctl(get, 0, 0, 0, 0) for get in _RETURNED_BY_PRCTL.values()]
        if _GET_MEMPOLICY is not None:
            _libc.syscall(_GET_MEMPOLICY, value, None, 0, None, 0)
            written.append(value.raw[:4])
        return (*written, *flags)

    def read_settable(self) -> tuple[object, ...]:
        """Return the values of those that other processes of the same user can set."""
        oom = os.pread(self._oom_fd, 16, 0)
        core = b"" if self._core_fd is None else os.pread(self._core_fd, 16, 0)
        priority = -1
        if _IOPRIO_GET is not None:
            priority = _libc.syscall(_IOPRIO_GET, _IOPRIO_WHO_PROCESS, 0)
        return (os.sched_getscheduler(0), oom, core, priority)


def open_if_there(path: str) -> int | None:
    """Open a file that only some kernels have."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
