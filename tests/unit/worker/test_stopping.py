"""Commands and handlers are stopped in the same two steps."""

import time

import pytest

from mitosis.contracts.outcome import FailureKind
from mitosis.worker.stopping import Stop


def test_a_second_stop_only_shortens_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stop = Stop.begin(FailureKind.TIMEOUT, "ran too long", 10.0)
    stop.shorten(60.0)
    assert (stop.deadline, stop.is_due) == (110.0, False)
    stop.shorten(5.0)
    assert (stop.kind, stop.message, stop.deadline) == (FailureKind.TIMEOUT, "ran too long", 105.0)
    now = 105.0
    assert stop.is_due
