"""Two files in memory that a zygote reads after the death of its worker.

The last messages of a dying worker may be lost, since ZeroMQ sends them from another thread. A byte in
shared memory is there at once. So the zygote knows for certain which task was running, and the stderr of
its handler.
"""

import mmap
import os
import struct
from typing import NamedTuple

from mitosis.contracts.attempt import AttemptKey
from mitosis.worker.output import memory_file, tail_of

_MARK = struct.Struct("=qq")
_NO_TASK = AttemptKey(-1, -1)


class Evidence(NamedTuple):
    """Descriptors, shared by zygote and worker."""

    stderr_fd: int
    mark_fd: int

    @classmethod
    def create(cls) -> "Evidence":
        evidence = cls(memory_file("stderr"), os.memfd_create("mark", os.MFD_CLOEXEC))
        os.write(evidence.mark_fd, _MARK.pack(*_NO_TASK))
        return evidence

    def close(self) -> None:
        for fd in self:
            os.close(fd)

    def stderr_tail(self, tail_bytes: int) -> str:
        """Return the tail of the stderr of the running handler."""
        return tail_of(self.stderr_fd, tail_bytes).text

    def running(self) -> AttemptKey | None:
        """Return the attempt that was running."""
        key = AttemptKey(*_MARK.unpack(os.pread(self.mark_fd, _MARK.size, 0)))
        return None if key == _NO_TASK else key


class RunningMark:
    """The worker's side of :meth:`Evidence.running`; costs no system call."""

    def __init__(self, mark_fd: int) -> None:
        self._memory = mmap.mmap(mark_fd, _MARK.size)

    def put(self, key: AttemptKey) -> None:
        _MARK.pack_into(self._memory, 0, *key)

    def clear(self) -> None:
        _MARK.pack_into(self._memory, 0, *_NO_TASK)
