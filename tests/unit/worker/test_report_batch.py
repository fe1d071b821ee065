"""How the reports of short tasks are gathered."""

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.messages import EncodedReport, TasksFinished
from mitosis.worker import report_batch
from mitosis.worker.report_batch import ReportBatch


@pytest.mark.parametrize(("size", "most"), [(10, 32), (100_000, 3)])
def test_a_batch_is_bounded_in_number_and_in_bytes(
    monkeypatch: pytest.MonkeyPatch, size: int, most: int
) -> None:
    monkeypatch.setattr(report_batch, "REPORT_AGE_SECONDS", 1e9)
    messages: list[TasksFinished] = []
    batch = ReportBatch(messages.append)
    for number in range(2 * most + 1):
        batch.add(EncodedReport(AttemptKey(number, 1), 1.0, 2.0, b"x" * size))
    batch.flush()
    assert [len(message.tasks) for message in messages] == [most, most, 1]
