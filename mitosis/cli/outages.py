"""What a command says while the API, or what it needs, is away: one line per outage, then it goes on."""

import logging
import time
from collections.abc import Callable, Collection
from datetime import timedelta

GIVE_UP_AFTER = timedelta(days=30)
"""Of commands that follow a group: it goes on without them, so they wait as long as it takes."""
PATIENCE_SECONDS = 1.0
"""A call that is answered at its second or third try is not worth a line."""
NEW_AFTER_SECONDS = 30.0
"""A failure so long after the last one belongs to another outage. Longer than any pause between tries."""


class Outages:
    """Told of every failed try; says when waiting begins."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._last = float("-inf")
        self._began = 0.0
        self._told = False

    def failed(self, reason: str) -> None:
        """A try has failed for this reason, and there will be another one."""
        now = self._clock()
        if now - self._last > NEW_AFTER_SECONDS:
            self._began, self._told = now, False
        self._last = now
        if not self._told and now - self._began >= PATIENCE_SECONDS:
            self._told = True
            self._say(f"{reason}; waiting, tasks go on meanwhile")


def announce_outages(say: Callable[[str], None], but: Collection[str] = ()) -> None:
    """Have every call of the SDK in this process that is repeated tell ``say`` of an outage, once.

    ``but``: codes of errors that somebody else speaks of.
    """
    calls = logging.getLogger("mitosis.client.repeating")
    calls.setLevel(logging.INFO)
    calls.propagate = False
    calls.handlers = [_Repeated(Outages(say), but)]


class _Repeated(logging.Handler):
    """The SDK logs every repetition, with the error as a fact."""

    def __init__(self, outages: Outages, but: Collection[str]) -> None:
        super().__init__()
        self._but = but
        self._outages = outages

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "error_code", None) not in self._but:
            self._outages.failed(str(getattr(record, "detail", record.getMessage())))
