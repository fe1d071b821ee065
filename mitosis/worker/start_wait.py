"""The time in which the start of a command is repeated, because its host has no process for it now.

The worker's loop waits with it as with a running command: it can be stopped, and has its next time.
"""

import time

from mitosis.contracts.outcome import FailureKind
from mitosis.worker.report import Ended

START_SECONDS = 5.0
"""For so long a start is repeated; then another host, or a later lease, gets the task."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0


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
        self._until = self.began_at + min(START_SECONDS, timeout_seconds or START_SECONDS)
        self._pause = FIRST_PAUSE_SECONDS
        self._due_at = self.began_at

    def again(self) -> bool:
        """Begin the next pause, which is longer; return False when the time is over."""
        self.tried = True
        now = time.monotonic()
        if now + self._pause > self._until:
            return False
        self._due_at = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
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
