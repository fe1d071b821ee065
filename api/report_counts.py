"""Counts reports by what became of them; one about an attempt that was never claimed is logged too."""

import logging
from collections.abc import Sequence
from uuid import UUID

from api.app_state import AppState
from mitosis.contracts.wire import ReportStatus

log = logging.getLogger(__name__)


def count_reports(state: AppState, reporter: UUID, statuses: Sequence[ReportStatus]) -> None:
    """Count the answers to reports of a host or a worker service.

    An unknown attempt is one of a deleted task group, or was never claimed by the reporter.
    """
    state.metrics.count_reports(statuses)
    unknown = statuses.count(ReportStatus.UNKNOWN)
    if unknown:
        log.warning("reports.unknown", extra={"reporter": str(reporter), "count": unknown})
