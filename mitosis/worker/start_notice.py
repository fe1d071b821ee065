"""When a worker says that a task has started: not at all if the task is over within milliseconds.

Its report then says so. Nothing depends on the message: what a dead worker had begun is known from shared
memory (:mod:`mitosis.worker.evidence`), and there the agent also looks for a task in code in C, during which
no message can be sent.
"""

import time
from collections.abc import Callable

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.messages import TaskStarted

LATE_SECONDS = 0.005
_MEAN_WEIGHT = 0.2


class StartNotice:
    """The message about the task that runs, while it is not sent."""

    def __init__(self, send: Callable[[TaskStarted], None]) -> None:
        self._send = send
        self._message: TaskStarted | None = None
        self._due_at = 0.0
        self._mean_seconds: float | None = None
        self._kind = ""

    def begin(
        self, key: AttemptKey, kind: str, overdue_seconds: float | None, *, at_once: bool
    ) -> bool:
        """Note that a task starts; send that at once unless the tasks before it were short.

        Those of another ``kind`` (handler or program) say nothing about it. With a time after which it is
        overdue it is sent at once too: the agent counts from then.

        Returns:
            whether it is sent.
        """
        self._message = TaskStarted(key, time.time(), overdue_seconds)
        self._due_at = time.monotonic() + LATE_SECONDS
        short = self._mean_seconds is not None and self._mean_seconds <= LATE_SECONDS
        same, self._kind = kind == self._kind, kind
        if short and same and not at_once and overdue_seconds is None:
            return False
        self.send()
        return True

    def send(self) -> None:
        """Send the message, if that has not been done."""
        if self._message is not None:
            message, self._message = self._message, None
            self._send(message)

    def due_at(self) -> float | None:
        """Return when (``time.monotonic``) :meth:`send` is due; None: nothing is to be sent."""
        return self._due_at if self._message is not None else None

    @property
    def is_due(self) -> bool:
        """Whether the task has run for so long that its start is to be said."""
        return self._message is not None and time.monotonic() >= self._due_at

    def end(self, seconds: float | None) -> None:
        """Note that the task is over; ``seconds``: how long it ran, None if it has not started."""
        self._message = None
        if seconds is not None:
            mean = self._mean_seconds
            self._mean_seconds = seconds if mean is None else mean + _MEAN_WEIGHT * (seconds - mean)
