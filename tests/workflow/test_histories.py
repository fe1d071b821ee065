"""Determinism: today's workflows replay what earlier ones did, and a changed one is caught.

A failure here means: a running workflow would get stuck after an upgrade. Use ``workflow.patched``; only
a history that no installation can have any more may be recorded again (``tools/record_histories.py``).
"""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from tests.workflow.changed import ChangedTaskGroupWorkflow
from tests.workflow.scenarios import SCENARIOS
from tests.workflow.servers import STRICT
from workflows.plugin import ControlPlugin, MitosisPlugin

FOLDER = Path(__file__).parents[1] / "histories"


def history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


def test_every_scenario_has_a_history() -> None:
    recorded = {path.stem.split(".")[0] for path in FOLDER.glob("*.json")}
    assert recorded == set(SCENARIOS)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
async def test_history_replays(path: Path) -> None:
    result = await Replayer(workflows=[], plugins=[ControlPlugin(policy=STRICT)]).replay_workflow(
        history(path), raise_on_replay_failure=False
    )
    assert result.replay_failure is None


async def test_changed_workflow_is_caught() -> None:
    replayer = Replayer(workflows=[ChangedTaskGroupWorkflow], plugins=[MitosisPlugin()])
    result = await replayer.replay_workflow(
        history(FOLDER / "task_group_auto_close.json"), raise_on_replay_failure=False
    )
    assert isinstance(result.replay_failure, NondeterminismError)
