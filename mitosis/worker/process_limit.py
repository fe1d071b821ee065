"""Bounds the processes and threads of the task of one worker, so that a fork bomb ends with its task.

Where a pids cgroup can be made, the kernel refuses the process beyond the limit and says so at once.
Elsewhere the worker counts its descendants four times a second; while the whole host has fewer threads
than the limit, that costs one read of a small file. Both ways end the task. Sources: cgroups(7), the
kernel's cgroup-v1/pids.rst and cgroup-v2.rst.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from mitosis.worker.process_tree import below, process_parents, stat_fields

MOST_BY_DEFAULT = 4096
LEAST_BY_DEFAULT = 64
OWN_THREADS = 4
"""Of the worker itself: its main thread, and those of ZeroMQ."""
CGROUPS = Path("/sys/fs/cgroup")
_LOOK_SECONDS = 0.25
_MOST_OF_TIME = 20
"""Counting takes at most one part in so many of a worker's time."""
_THREADS = 17
"""Field 20 of proc_pid_stat(5), counted from the state."""


def default_limit(worker_count: int) -> int:
    """Return the limit of a worker whose plan has none: all together may take half of what the host has."""
    share = _room() // 2 // worker_count
    return max(LEAST_BY_DEFAULT, min(MOST_BY_DEFAULT, share))


def pids_folder(cgroup: str | None = None, root: Path = CGROUPS) -> Path | None:
    """Return the folder in which this process may make cgroups with a limit of processes.

    Args:
        cgroup: content of ``/proc/self/cgroup``; None = read it.
        root: where the cgroup file systems are mounted.
    """
    try:
        lines = (cgroup or Path("/proc/self/cgroup").read_text()).splitlines()
    except OSError:
        return None
    found = [_usable(line, root) for line in lines]
    return next((folder for folder in found if folder is not None), None)


def _usable(line: str, root: Path) -> Path | None:
    _, controllers, path = line.split(":", 2)
    inner = path.lstrip("/")
    if "pids" in controllers.split(","):
        places = [root / "pids" / inner, root / "pids"]  # the second: inside a cgroup namespace
        return next((place for place in places if os.access(place, os.W_OK)), None)
    if controllers:
        return None
    own = root / inner
    for folder in (
        own,
        own.parent,
    ):  # version 2: a group with processes has no groups with controllers
        with contextlib.suppress(OSError):
            given = (folder / "cgroup.subtree_control").read_text().split()
            if "pids" in given and os.access(folder / "cgroup.procs", os.W_OK):
                return folder
    return None


@dataclass(frozen=True, slots=True)
class PidsGroup:
    """The cgroup of one worker slot; the next worker of the slot uses it again."""

    folder: Path

    @classmethod
    def enter(cls, name: str, limit: int, *, confined: bool) -> "PidsGroup | None":
        """Put this process into a group with this limit; None where that is not possible.

        In version 2 a process is in one group only, so one ``confined`` to its cores by a group stays there.
        """
        parent = pids_folder()
        if parent is None or (confined and (parent / "cgroup.subtree_control").exists()):
            return None
        folder = parent / name
        try:
            folder.mkdir(exist_ok=True)
            (folder / "pids.max").write_text(str(limit + OWN_THREADS))
            (folder / "cgroup.procs").write_text(str(os.getpid()))
            (folder / "pids.events").read_text()
        except OSError:
            return None
        return cls(folder)


def remove_groups(prefix: str) -> None:
    """Remove the groups of this zygote, and of those that were killed; ``prefix`` precedes their pids."""
    parent = pids_folder()
    for folder in parent.glob(f"{prefix}*") if parent is not None else ():
        zygote = folder.name.removeprefix(prefix).partition(".")[0]
        if zygote == str(os.getpid()) or not Path("/proc", zygote).exists():
            with contextlib.suppress(OSError):  # a process is left in it
                folder.rmdir()


class ProcessLimit:
    """Finds that the running task has more processes than it may have."""

    def __init__(self, limit: int, group: PidsGroup | None) -> None:
        self.limit = limit
        self.fd: int | None = None
        """Has POLLPRI when the kernel has refused a process; None: call :meth:`exceeded` now and then."""
        if group is not None:
            self.fd = os.open(group.folder / "pids.events", os.O_RDONLY | os.O_CLOEXEC)
        self._refused = 0
        self._refused = self._events()
        self._not_before = 0.0
        self.hit = False
        """Whether the running task has gone beyond it."""

    @property
    def message(self) -> str:
        return (
            f"more than {self.limit:,} processes and threads at the same time"
            " (max_processes_per_worker of the plan)"
        )

    def begin(self) -> None:
        """Start a task: what the last one did does not count."""
        self._refused, self.hit = self._events(), False

    def wakes_at(self) -> float | None:
        """Return when (``time.monotonic``) to look again; None: the kernel says when."""
        return self._not_before if self.fd is None else None

    def exceeded(self) -> bool:
        """Check whether the task has gone beyond the limit since the last call."""
        if self.fd is not None:
            before, self._refused = self._refused, self._events()
            self.hit |= self._refused > before
            return self._refused > before
        began = time.monotonic()
        if began < self._not_before:
            return False
        try:
            many = _threads_of_host() > self.limit and self._count() > self.limit
        except OSError:  # the task has left no file to open: nothing is known, as between two looks
            many = False
        self.hit |= many
        now = time.monotonic()
        self._not_before = now + max(_LOOK_SECONDS, (now - began) * _MOST_OF_TIME)
        return many

    def found(self, left: int) -> None:
        """Take note of the processes that the ended task left, which no look may have seen."""
        self.hit |= left > self.limit

    def _events(self) -> int:
        if self.fd is None:
            return 0
        try:
            return int(os.pread(self.fd, 256, 0).split()[1])
        except (OSError, IndexError):  # a handler has closed or replaced it, and its worker ends
            return self._refused

    def _count(self) -> int:
        """Count the threads of all descendants, as the kernel would."""
        return sum(map(_threads_of, below(os.getpid(), process_parents())))


def _threads_of(pid: int) -> int:
    fields = stat_fields(pid)
    return max(1, int(fields[_THREADS])) if fields else 0


def _threads_of_host() -> int:
    """Source: proc_loadavg(5): runnable threads, a slash, all threads."""
    with open("/proc/loadavg", "rb") as file:  # noqa: PTH123 - four times a second
        return int(file.read().split()[3].partition(b"/")[2])


def _room() -> int:
    """Return how many threads this host, or the cgroup of this process, can have."""
    limits = [number_in(Path("/proc/sys/kernel", name)) for name in ("pid_max", "threads-max")]
    folder = pids_folder()
    if folder is not None:
        limits.append(number_in(folder / "pids.max"))
    return min((limit for limit in limits if limit is not None), default=MOST_BY_DEFAULT)


def number_in(file: Path) -> int | None:
    """Return the number in a file of the kernel; None without one."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None
