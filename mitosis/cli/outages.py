"""Reports an outage of the API, or of a server behind it, with one line; the command keeps waiting."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

GIVE_UP_AFTER = timedelta(days=30)
"""For commands that follow a task group: the tasks run on during an outage, so the command waits."""
REPORT_AFTER_SECONDS = 1.0
"""Outages that the first retries bridge are not reported."""
NEW_AFTER_SECONDS = 30.0
"""A failure this long after the last one begins a new outage. Longer than any pause between retries."""


class Outages:
    """Counts failed calls; reports each outage once."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._last = float("-inf")
        self._began = 0.0
        self._reported = False

    def failed(self, reason: str) -> None:
        """Record a failed call that will be retried."""
        now = self._clock()
        if now - self._last > NEW_AFTER_SECONDS:
            self._began, self._reported = now, False
        self._last = now
        if not self._reported and now - self._began >= REPORT_AFTER_SECONDS:
            self._reported = True
            self._say(f"{reason}; waiting, tasks keep running")

    def over(self) -> None:
        """Record that the API answers; the next failed call begins a new outage."""
        self._last = float("-inf")


@contextmanager
def announced_outages(outages: Outages) -> Iterator[None]:
    """Report outages that retried calls of the SDK meet while the block runs."""
    calls = logging.getLogger("mitosis.client.repeating")
    before = calls.level, calls.propagate, calls.handlers
    calls.setLevel(logging.INFO)
    calls.propagate, calls.handlers = False, [_Repeated(outages)]
    try:
        yield
    finally:
        calls.setLevel(before[0])
        _, calls.propagate, calls.handlers = before


class _Repeated(logging.Handler):
    """Reads the log records of the SDK: one per retry, with the error as a fact."""

    def __init__(self, outages: Outages) -> None:
        super().__init__()
        self._outages = outages

    def emit(self, record: logging.LogRecord) -> None:
        self._outages.failed(str(getattr(record, "detail", record.getMessage())))
