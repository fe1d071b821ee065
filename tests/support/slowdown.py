"""How long the processes of a campaign wait for a core, beside what they compute.

A limit of seconds holds on a machine of one's own. On a busy one every second of computing takes longer, by
a factor that the kernel counts for each thread: proc(5), ``/proc/[pid]/schedstat``, the time on a core and
the time on a run queue. Waits for locks, timers and answers do not count: they are the product's own.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

KEPT_SAMPLES = 2000


class Spent(NamedTuple):
    """Seconds of all threads."""

    computing: float = 0.0
    queued: float = 0.0

    @property
    def slowdown(self) -> float:
        """Return how long a second of computing took; 1.0: no thread waited for a core."""
        return 1.0 + self.queued / self.computing if self.computing > 0 else 1.0


@dataclass
class Slowdown:
    """Samples of this process and of all processes below it."""

    _threads: dict[Path, Spent] = field(default_factory=dict)
    _samples: deque[tuple[float, Spent]] = field(
        default_factory=lambda: deque([(-math.inf, Spent())], maxlen=KEPT_SAMPLES)
    )

    def sample(self, now: float) -> None:
        """Add what every thread has spent since the sample before."""
        seen = {thread: spent for thread in _threads() if (spent := _spent(thread)) is not None}
        computing, queued = self._samples[-1][1]
        for thread, spent in seen.items():
            before = self._threads.get(thread, spent)
            computing += spent.computing - before.computing
            queued += spent.queued - before.queued
        self._threads = seen
        self._samples.append((now, Spent(computing, queued)))

    def since(self, begin: float) -> float:
        """Return the slowdown from the last sample before ``begin`` to the last one of all."""
        samples = reversed(self._samples)
        first = next((spent for at, spent in samples if at <= begin), self._samples[0][1])
        last = self._samples[-1][1]
        return Spent(last.computing - first.computing, last.queued - first.queued).slowdown


def _threads() -> list[Path]:
    here = psutil.Process()
    folders = (Path(f"/proc/{one.pid}/task") for one in (here, *here.children(recursive=True)))
    return [thread for folder in folders for thread in _listed(folder)]


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the process has ended
        return []


def _spent(thread: Path) -> Spent | None:
    try:
        computing, queued, _ = (thread / "schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return Spent(int(computing) / 1e9, int(queued) / 1e9)
