"""Sends a batch of reports until each is answered; isolates the one that the API does not take (P5).

A batch whose content is refused is halved until the report is found, which is postponed, so that one
report never holds up the others. If it stays refused, its task ends as ``result_refused``: a small report
of the agent takes its place.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from mitosis.contracts.errors import MitosisError
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.wire import Outcome, ReportAnswer, TaskReport
from mitosis.execution.backoff import REFUSED_POLICY, REPORT_POLICY
from mitosis.execution.port import SessionApi
from mitosis.fates import Fate, fate
from mitosis.ipc.messages import EncodedReport
from mitosis.retry_policy import Backoff

DIVISIBLE_BYTES = 1_000_000
"""A larger batch without an answer is halved: the network or the API may be too slow for it."""
LOG_AFTER_PAUSE_SECONDS = 30.0

Answered = Callable[[int, Sequence[EncodedReport], ReportAnswer], None]
Postponed = Callable[[int, EncodedReport, MitosisError], None]

log = logging.getLogger(__name__)


class ReportSender:
    """Makes the report calls of an agent."""

    def __init__(self, api: SessionApi, answered: Answered, postponed: Postponed) -> None:
        """Make no call yet.

        Args:
            api: its ``report``.
            answered: called with an epoch, reports of it, and their answer.
            postponed: called with a report that no answer settles now, and the error.
        """
        self._api = api
        self._answered = answered
        self._postponed = postponed
        self.trouble: str | None = None
        """Why no report at all is taken, while that is so."""

    async def send(self, epoch: int, reports: Sequence[EncodedReport]) -> None:
        """Return when each report is answered or postponed.

        Raises:
            MitosisError: the API refuses this agent for good; some reports are not answered.
        """
        parts = deque([list(reports)])
        while parts:
            part = parts.popleft()
            error = await self._send_part(epoch, part)
            if error is None:
                continue
            if len(part) > 1:
                middle = len(part) // 2
                parts.extendleft((part[middle:], part[:middle]))
            else:
                self._postponed(epoch, part[0], error)

    async def _send_part(self, epoch: int, reports: Sequence[EncodedReport]) -> MitosisError | None:
        """Send reports until they are answered; return the error if other reports may do better."""
        encoded = [report.report for report in reports]
        passing, refused = Backoff(REPORT_POLICY), Backoff(REFUSED_POLICY)
        while True:
            try:
                answer = await self._api.report(epoch, encoded)
            except MitosisError as error:
                if await self._is_about_content(epoch, error):
                    self.trouble = None
                    return error
                passes = fate(error) is Fate.PASSING
                backoff = passing if passes else refused
                pause = backoff.next_pause(error)
                self.trouble = (
                    f"no report is taken: {error.message[:500]}; sent again at least every"
                    f" {backoff.policy.longest_seconds:g} s".replace("\0", "")
                )
                if backoff.failures == 1 or pause >= LOG_AFTER_PAUSE_SECONDS:
                    facts = {"reason": error.message, "pause_seconds": round(pause, 1)}
                    log.warning("reports.not_acknowledged", extra=facts)
                await asyncio.sleep(pause)
                if passes and len(reports) > 1 and sum(map(len, encoded)) > DIVISIBLE_BYTES:
                    return error
            else:
                self.trouble = None
                self._answered(epoch, reports, answer)
                return None

    async def _is_about_content(self, epoch: int, error: MitosisError) -> bool:
        """Return whether the error comes from the reports in the call: a call without any is answered.

        Raises:
            MitosisError: the API refuses this agent for good.
        """
        match fate(error):
            case Fate.CALLER_REFUSED:
                raise error
            case Fate.PASSING:
                return False
            case Fate.CALL_REFUSED | Fate.BROKEN:
                pass
        if error.code == "too_large" or error.facts.get("status") == 413:
            return True
        try:
            await self._api.report(epoch, [])
        except MitosisError as other:
            if fate(other) is Fate.CALLER_REFUSED:
                raise
            return False
        return True


def result_refused(refused: EncodedReport, error: MitosisError) -> EncodedReport:
    """Return a small report that ends the attempt without what it returned and wrote."""
    ended = _decoded(refused)
    message = (
        f"it {ended.outcome}, but its report of {len(refused.report):,} bytes was refused for good:"
        f" {error.message[:500]}; result and output are lost, return less or write to a file"
    )
    log.error(
        "report.refused",
        extra={
            "task_id": refused.key.task_id,
            "attempt": refused.key.attempt,
            "bytes": len(refused.report),
            "code": error.code,
            "reason": error.message[:500],
        },
    )
    cancelled = ended.outcome is Outcome.CANCELLED
    small = TaskReport(
        task_id=refused.key.task_id,
        attempt=refused.key.attempt,
        outcome=Outcome.CANCELLED if cancelled else Outcome.FAILED,
        kind=FailureKind.CANCELLED if cancelled else FailureKind.RESULT_REFUSED,
        exit_code=ended.exit_code,
        signal=ended.signal,
        started_at=ended.started_at,
        finished_at=ended.finished_at,
        detail=msgspec.Raw(msgspec.json.encode({"message": message})),
    )
    return EncodedReport.of(small)


def _decoded(report: EncodedReport) -> TaskReport:
    """Decode a report, or return the facts beside it if it has values that no report may have."""
    try:
        return msgspec.json.decode(report.report, type=TaskReport)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return TaskReport(
            task_id=report.key.task_id,
            attempt=report.key.attempt,
            outcome=Outcome.FAILED,
            started_at=report.started_at,
            finished_at=report.finished_at,
        )
