"""The short campaign: everything that runs in a stack is killed once while 180 tasks run."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.checker import violations
from tests.chaos.plan import plan

SEED = 20_301
TASKS = 180


@pytest.mark.timeout(300)
@pytest.mark.spec("S000-152", "S000-186", "S002-56", "S002-116", "S002-270")
def test_kill_9_of_any_process_loses_and_doubles_nothing(tmp_path: Path, runtime_dir: Path) -> None:
    run_dir = runtime_dir / "chaos"
    run_dir.mkdir(mode=0o711)
    facts = Campaign(plan(SEED, TASKS, pairs=False, stretch=2), tmp_path, run_dir).run()
    assert violations(facts) == []
    # The same facts with one result lost, and with one of them twice, are not accepted.
    last = facts.results[-1]
    lost = replace(facts, results=facts.results[:-1])
    doubled = replace(facts, results=(*facts.results, last))
    assert f"every_task_has_one_result: task {last.task_id} has 0 results" in violations(lost)
    assert f"every_task_has_one_result: task {last.task_id} has 2 results" in violations(doubled)
