"""Finds processes that a signal has stopped (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU) and nothing continues.

And those whose main thread has ended while others live, as after ``pthread_exit``: the kernel does not
call such a process dead. Both hold their task for ever: they neither end it nor report. Time is counted in
looks, so a process that was stopped together with this one is not found.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from mitosis.worker.process_tree import stat_fields

LOOK_SECONDS = 1.0
STOPPED_LIMIT = timedelta(seconds=30)
"""A process may be stopped for so long (the default of the setting)."""
TWO_LOOKS = timedelta(0)
"""A process that is about to end has no main thread for a moment."""
_THREADS = 17
"""Field 20, counted from the state."""


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process; False while a debugger stops it (state t)."""
    return stat_fields(pid)[:1] == [b"T"]


def has_lost_main_thread(pid: int) -> bool:
    """Return whether the main thread has ended, and another lives. Source: proc_pid_stat(5), num_threads."""
    fields = stat_fields(pid)
    return fields[:1] == [b"Z"] and int(fields[_THREADS]) > 1


class StoppedProcesses:
    """Counts in how many looks in a row a process was stopped."""

    def __init__(self, limit: timedelta, stopped: Callable[[int], bool] = is_stopped) -> None:
        self._looks = max(1, round(limit.total_seconds() / LOOK_SECONDS))
        self._stopped = stopped
        self._seen: Counter[int] = Counter()

    def look(self, pids: Iterable[int]) -> Sequence[int]:
        """Return those of the processes that were stopped in so many looks that the limit is over."""
        self._seen = Counter({pid: self._seen[pid] + 1 for pid in pids if self._stopped(pid)})
        return [pid for pid, looks in self._seen.items() if looks > self._looks]
