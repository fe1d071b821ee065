"""A handler module whose workers can open no descriptor for a process, as on a host with no file left."""

import errno
import os

_zygote = os.getpid()
_real_pidfd_open = os.pidfd_open


def _pidfd_open(pid: int, flags: int = 0) -> int:
    if os.getpid() == _zygote:
        return _real_pidfd_open(pid, flags)
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


os.pidfd_open = _pidfd_open
