"""Reports as the API reads them: a worker and its agent pass them on as bytes."""

import msgspec

from mitosis.contracts.wire import TaskReport
from mitosis.ipc.messages import EncodedReport


def decoded(encoded: EncodedReport) -> TaskReport:
    """Decode a report; what stands beside the bytes must say the same."""
    report = msgspec.json.decode(encoded.report, type=TaskReport)
    assert encoded.key == (report.task_id, report.attempt)
    assert (encoded.started_at, encoded.finished_at) == (report.started_at, report.finished_at)
    return report
