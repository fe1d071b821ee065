"""Gathers the reports of short tasks, so that several are one message."""

import time
from collections.abc import Callable

from mitosis.ipc.messages import EncodedReport, TasksFinished

MOST_REPORTS = 32
"""Half of what a worker may hold: the agent sends more while it runs the rest."""
_MOST_BYTES = 256 * 1024
REPORT_AGE_SECONDS = 0.01


class ReportBatch:
    """The reports that are not sent yet."""

    def __init__(self, send: Callable[[TasksFinished], None]) -> None:
        self._send = send
        self._reports: list[EncodedReport] = []
        self._bytes = 0
        self._flush_at = 0.0

    def add(self, report: EncodedReport) -> None:
        """Send it with those before it when the batch is full or old."""
        now = time.monotonic()
        if not self._reports:
            self._flush_at = now + REPORT_AGE_SECONDS
        self._reports.append(report)
        self._bytes += len(report.report)
        full = len(self._reports) >= MOST_REPORTS or self._bytes >= _MOST_BYTES
        if full or now >= self._flush_at:
            self.flush()

    def due_at(self) -> float | None:
        """Return when (``time.monotonic``) :meth:`flush` is due; None: nothing waits."""
        return self._flush_at if self._reports else None

    @property
    def is_due(self) -> bool:
        return bool(self._reports) and time.monotonic() >= self._flush_at

    def flush(self) -> None:
        if self._reports:
            self._send(TasksFinished(tuple(self._reports)))
            self._reports.clear()
            self._bytes = 0
