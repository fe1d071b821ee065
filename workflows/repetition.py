"""Pauses between repetitions that change nothing: pure, without a clock and without Temporal.

A decision and a guard in PostgreSQL that disagree must neither spin nor fill a history. The pauses grow to
minutes; a poke, and a change of what was observed, start over.
"""

from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0
_MOST_DOUBLINGS = 16


def growing(first: float, repetitions: int) -> float:
    """Return ``first`` doubled once per repetition, at most :data:`LONGEST_PAUSE_SECONDS`."""
    return min(first * 2.0 ** min(repetitions, _MOST_DOUBLINGS), LONGEST_PAUSE_SECONDS)


@dataclass(slots=True)
class RepeatedStep:
    """How often the same step has been executed in a row."""

    step: object = None
    repetitions: int = 0
    executed_at: float = 0.0

    def pause(self, step: object, now: float) -> float:
        """Return the seconds to wait before ``step``; 0 for another step than the last one."""
        return max(0.0, self._pause() - (now - self.executed_at)) if step == self.step else 0.0

    def executed(self, step: object, now: float) -> None:
        """Record the execution of ``step``. One that comes long after the last is no repetition."""
        again = step == self.step and now - self.executed_at < 2 * LONGEST_PAUSE_SECONDS
        self.repetitions = self.repetitions + 1 if again else 0
        self.step, self.executed_at = step, now

    def reset(self) -> None:
        """Forget the last step: something has changed."""
        self.step, self.repetitions = None, 0

    def _pause(self) -> float:
        return growing(FIRST_PAUSE_SECONDS, self.repetitions)


@dataclass(slots=True)
class RepeatedLook:
    """How often a wait for the same thing has ended without news."""

    subject: object = None
    repetitions: int = 0

    def seconds(self, subject: object, first: float) -> float:
        """Return how long to wait before the next look for ``subject``."""
        return growing(first, self.repetitions if subject == self.subject else 0)

    def nothing_new(self, subject: object) -> None:
        """Record a wait that ended without news."""
        self.repetitions = self.repetitions + 1 if subject == self.subject else 1
        self.subject = subject

    def reset(self) -> None:
        """Start over with short waits."""
        self.subject, self.repetitions = None, 0
