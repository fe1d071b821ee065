"""What runs that began before ``QUIET_HISTORY`` do: their histories must replay. Remove it with the patch.

Workflow code: deterministic, no I/O.
"""

from datetime import UTC, datetime

from temporalio import workflow

POKES_BEFORE_CONTINUE_AS_NEW = 150
LONGEST_PAUSE_SECONDS = 60.0
ONLY_STEPS_COUNT = "only-deeds-count"
"""Id of a patch, stored in histories. Before it, a poke during the backoff lengthened the backoff."""


class EarlierBackoff:
    """The backoff between repeated steps, and the pokes of a run."""

    def __init__(self) -> None:
        self.handled = 0
        self._repeats = self._repeats_now = 0
        self._last: object = None
        self._done_at = datetime.min.replace(tzinfo=UTC)

    def is_long(self) -> bool:
        """Return whether this run has had enough pokes to continue as new."""
        return self.handled >= POKES_BEFORE_CONTINUE_AS_NEW

    def only_steps_count(self) -> bool:
        """Return whether a poke leaves the backoff as it is."""
        return workflow.patched(ONLY_STEPS_COUNT)

    def reset(self) -> None:
        """Forget the last step."""
        self._repeats, self._last = 0, None

    def repeats(self, step: object) -> int:
        """Count a repetition of ``step``, which may begin a pause, and return how many there were."""
        self._repeats_now = self._repeats + 1 if step == self._last else 0
        return self._repeats_now

    def pause(self) -> float:
        """Return the seconds left to wait."""
        pause = min(2.0 ** (self._repeats_now - 1), LONGEST_PAUSE_SECONDS)
        if self.only_steps_count():
            pause -= (workflow.now() - self._done_at).total_seconds()
        return pause

    def executed(self, step: object) -> None:
        """Record the execution of ``step``."""
        self._repeats, self._last, self._done_at = self._repeats_now, step, workflow.now()
