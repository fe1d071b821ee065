"""Which errors of making a process pass: the host is short of something that others give back.

A start that failed with one of them is repeated with a growing pause and charged to the host. Every other
error is for good, as a program that does not exist, and belongs to what was to be started.
Sources: fork(2), execve(2), pipe(2).
"""

import errno

PASSING_ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""No process, no memory, or no file descriptor is left."""


def start_may_pass(error: BaseException) -> bool:
    """Return whether the same start may succeed later."""
    return isinstance(error, OSError) and error.errno in PASSING_ERRORS
