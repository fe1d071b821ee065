"""The short campaign over a stack in parts: API, control worker and relay die alone, one by one."""

from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.checker import violations
from tests.chaos.plan import Topology, plan

SEED = 20_302
TASKS = 120


@pytest.mark.timeout(300)
@pytest.mark.spec("S000-152", "S002-270")
def test_kill_9_of_a_part_alone_loses_and_doubles_nothing(
    tmp_path: Path, runtime_dir: Path
) -> None:
    run_dir = runtime_dir / "parts"
    run_dir.mkdir(mode=0o711)
    planned = plan(SEED, TASKS, pairs=False, topology=Topology.PARTS, stretch=2)
    assert violations(Campaign(planned, tmp_path, run_dir).run()) == []
