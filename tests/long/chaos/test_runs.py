"""The short campaign over runs: each of six parts dies once, at each of six moments of a run."""

from pathlib import Path

import pytest

from tests.chaos.runs.campaign import RunCampaign
from tests.chaos.runs.judge import violations
from tests.chaos.runs.plan import VICTIMS, Moment, planned_runs

SEED = 20_318
RUNS = 8


@pytest.mark.timeout(400)
@pytest.mark.spec("S001-46", "S001-51")
def test_kill_9_of_a_part_changes_no_run(tmp_path: Path, runtime_dir: Path) -> None:
    (run_dir := runtime_dir / "runs").mkdir(mode=0o711)
    planned = planned_runs(SEED, RUNS)
    kills = [run.kill for run in planned if run.kill is not None]
    assert {victim for victim, _ in kills} == set(VICTIMS)
    assert {moment for _, moment in kills} == set(Moment)
    assert violations(RunCampaign(planned, SEED, tmp_path, run_dir).run()) == []
