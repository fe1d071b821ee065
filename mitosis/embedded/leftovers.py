"""Removes the folders of killed processes, never one that is still in use.

A folder is in use while a process locks the lock file in it. The kernel releases the lock when the process
dies. Source: flock(2).
"""

import fcntl
import os
import shutil
import stat
import time
from pathlib import Path

LOCK = "lock"
DYING_SECONDS = 2.0
"""A process that was just killed keeps its files open for a moment."""


def try_lock(path: Path) -> int | None:
    """Lock the existing file at ``path``; return None if another process holds it or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_own_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder of this user and no link."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def remove_agents(run: Path) -> None:
    """Remove the run folders of dead agents below the run folder of a stack."""
    if not is_own_folder(run):
        return
    deadline = time.monotonic() + DYING_SECONDS
    for folder in run.glob(f"mitosis-{os.getuid()}-*"):
        while is_own_folder(folder) and (folder / LOCK).exists():
            if (lock := try_lock(folder / LOCK)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
            elif time.monotonic() > deadline:
                break
            else:
                time.sleep(0.02)
