"""What a worker leaves behind for its zygote to read, however suddenly it dies: two files in memory.

A message that a dying worker has sent may never leave it: ZeroMQ sends from a thread of its own. A byte
in shared memory is there at once. So the zygote can tell for certain which task was running, and what
its handler had written to stderr.
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
        """The end of what the running handler had written to stderr."""
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
