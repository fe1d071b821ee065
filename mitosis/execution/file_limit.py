"""The limit of open files of a process that has many workers."""

import resource


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; return it. Source: setrlimit(2)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
