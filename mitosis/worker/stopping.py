"""Stops of running tasks, in two steps: the task is asked to end, and killed after its grace."""

import time
from dataclasses import dataclass
from typing import Self

from mitosis.contracts.outcome import FailureKind


@dataclass(slots=True)
class Stop:
    """Why a task is stopped, and when (``time.monotonic``) its grace is over."""

    kind: FailureKind
    message: str
    deadline: float

    @classmethod
    def begin(cls, kind: FailureKind, message: str, grace_seconds: float) -> Self:
        """Start the grace now."""
        return cls(kind, message, time.monotonic() + grace_seconds)

    def shorten(self, grace_seconds: float) -> None:
        """Stop again: the grace may become shorter, never longer; kind and message stay."""
        self.deadline = min(self.deadline, time.monotonic() + grace_seconds)

    @property
    def is_due(self) -> bool:
        """Whether the grace is over."""
        return time.monotonic() >= self.deadline
