"""A handler module with which no descriptor for a process can be opened, as on a host with no file left.

``NO_DESCRIPTOR_IN`` says where: in the workers, or in the zygote for its first worker.
"""

import errno
import os

_zygote = os.getpid()
_real_pidfd_open = os.pidfd_open
_refused = False


def _pidfd_open(pid: int, flags: int = 0) -> int:
    global _refused  # noqa: PLW0603 - of this process
    if os.environ["NO_DESCRIPTOR_IN"] == "workers":
        refuses = os.getpid() != _zygote
    else:
        refuses = os.getpid() == _zygote and not _refused
    if not refuses:
        return _real_pidfd_open(pid, flags)
    _refused = True
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


os.pidfd_open = _pidfd_open
