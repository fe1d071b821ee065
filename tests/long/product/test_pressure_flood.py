"""A submitter faster than the fleet, against a real `mitosis up`; for minutes: `make pressure ARGS=flood`."""

from pathlib import Path

import psutil
import pytest

from tests.pressure.flood import ENVIRONMENT, MARGIN_BYTES, flood
from tests.support.program import running_up


@pytest.mark.timeout(120)
def test_a_submitter_that_is_too_fast_waits_and_nothing_grows(tmp_path: Path) -> None:
    with running_up(tmp_path / "data", more=ENVIRONMENT) as up:
        seen = flood(tmp_path / "data", psutil.Process(up.pid), seconds=0)
    assert seen.waits >= 1
    assert seen.submitted >= 500
    assert len(seen.grown_bytes) >= 4  # stack, agent, Temporal, submitter
    assert all(grown < MARGIN_BYTES for grown in seen.grown_bytes.values()), seen
    assert seen.connections < 40, seen
