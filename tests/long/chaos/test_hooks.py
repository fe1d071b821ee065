"""What a hook outlives: all but its own agent is killed while a setup hook, then a teardown hook, runs."""

import json
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from mitosis.client.sync import SyncClient
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupResult
from tests.chaos.plan import Victim
from tests.chaos.victims import candidates, kill
from tests.support.admin import admin_client
from tests.support.fleet import Diary
from tests.support.prepared import PreparedPopen
from tests.support.program import clean_environment, prepared_mitosis, running_up
from tests.support.waiting import wait_until

OTHERS = (Victim.API, Victim.CONTROL, Victim.POSTGRES, Victim.TEMPORAL)
BACK_SECONDS = 60.0


@pytest.mark.timeout(200)
@pytest.mark.spec("S000-152")
def test_a_hook_runs_once_whoever_dies_meanwhile(tmp_path: Path, runtime_dir: Path) -> None:
    (run_dir := runtime_dir / "hooks").mkdir(mode=0o711)
    data_dir, diary = tmp_path / "data", Diary(tmp_path)
    more = {"MITOSIS_RUN_DIR": str(run_dir / "stack")}
    begin = prepared_mitosis(clean_environment())
    prepared = [f"{part}={json.dumps([*begin, part])}" for part in ("api", "control")]
    program = ["tests.chaos.parts", str(data_dir), *prepared]
    with running_up(data_dir, more=more, program=program) as up:
        with _client(data_dir) as client:
            group = client.create_group(_spec(diary)).task_group_id
            client.submit(group, [diary.task("t")])
        wait_until(lambda: diary.began("setup"), BACK_SECONDS)
        _kill_others(up, data_dir)
        diary.go("setup")
        wait_until(lambda: diary.ended("t"), BACK_SECONDS, diary.lines)
        with _client(data_dir) as client:
            client.close_group(group)
        wait_until(lambda: diary.began("teardown"), BACK_SECONDS, diary.lines)
        _kill_others(up, data_dir)
        diary.go("teardown")
        with _client(data_dir) as client:
            info = client.wait(group, timeout=timedelta(seconds=BACK_SECONDS))
        assert info.result is TaskGroupResult.SUCCESS
        parts = ("setup", "t", "teardown")
        assert diary.lines() == [f"{word} {part}" for part in parts for word in "SE"]
        up.terminate()
        assert up.wait(90) == 0


def _spec(diary: Diary) -> TaskGroupSpec:
    return TaskGroupSpec(
        name="hooks",
        worker_allocation_plan=WorkerAllocationPlan(worker_count=1),
        environment_setup_hook=diary.hook("setup", wait=True),
        environment_teardown_hook=diary.hook("teardown", wait=True),
    )


def _client(data_dir: Path) -> SyncClient:
    return admin_client(data_dir)


def _kill_others(up: PreparedPopen, data_dir: Path) -> None:
    """One right after the other; returns when all are there again."""
    before = _pids(up)
    for victim in OTHERS:
        kill(up.pid, victim, data_dir, Random(0))
    wait_until(lambda: len(_pids(up) - before) == len(OTHERS), BACK_SECONDS)


def _pids(up: PreparedPopen) -> set[int]:
    return {process.pid for victim in OTHERS for process in candidates(up.pid, victim)}
