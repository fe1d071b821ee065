"""The time in which the start of a command is repeated, because its host has no process for it now.

The worker's loop waits with it as with a running command: it can be stopped, and has its next time.
"""

import math
import time

from mitosis.contracts.outcome import FailureKind
from mitosis.worker.report import Ended

PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0)
"""Between two tries. A table, since the policy of retries is too heavy for a worker."""
START_SECONDS = sum(PAUSES_SECONDS)
"""For so long a start is repeated; then another host, or a later lease, gets the task."""


class StartWait:
    """One command that has not begun."""

    def __init__(self, timeout_seconds: float | None) -> None:
        """Count from now; no longer than the timeout of the task."""
        self.began_at = time.monotonic()
        self.ended: Ended | None = None
        """It was stopped before it began."""
        self.tried = False
        """A start was refused: what the kernel has counted since was no limit of the task."""
        self._started_at = time.time()
        self._until = self.began_at + (timeout_seconds or math.inf)
        self._pauses = iter(PAUSES_SECONDS)
        self._due_at = self.began_at

    def again(self) -> bool:
        """Begin the next pause, which is longer; return False when the time is over."""
        self.tried = True
        pause = next(self._pauses, None)
        if pause is None or time.monotonic() + pause > self._until:
            return False
        self._due_at = time.monotonic() + pause
        return True

    @property
    def is_over(self) -> bool:
        """Whether the pause has ended, or the command was stopped."""
        return self.ended is not None or time.monotonic() >= self._due_at

    def fds(self) -> tuple[int, ...]:
        """Return no descriptor: only time and messages end a pause."""
        return ()

    def wakes_at(self) -> float:
        """Return the time (``time.monotonic``) of the next try."""
        return self._due_at

    def stop(self, kind: FailureKind, message: str, grace_seconds: float | None = None) -> None:
        """End it: there is no process that would need the grace."""
        del grace_seconds
        self.ended = Ended(
            kind=kind, message=message, started_at=self._started_at, finished_at=time.time()
        )
