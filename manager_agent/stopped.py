"""Finds processes that a signal has stopped (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU) and nothing continues.

A stopped worker holds its task for ever: it neither ends it nor reports. Time is counted in looks, so a
process that was stopped together with this one is not found.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from mitosis.worker.process_tree import stat_fields

LOOK_SECONDS = 1.0
STOPPED_LIMIT = timedelta(seconds=30)
"""A process may be stopped for so long (the default of the setting)."""


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process; False while a debugger stops it (state t)."""
    return stat_fields(pid)[:1] == [b"T"]


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
