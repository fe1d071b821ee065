"""`mitosis simulate --record`: what a deployment has run becomes a workload that can be simulated."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mitosis.contracts.wire import Outcome
from mitosis.scheduling.simulation.recording import read_workload
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.command import Ran, mitosis
from tests.support.servers import LoopThread


@pytest.fixture
def stack(
    server_loop: LoopThread, database: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CliStack]:
    for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MITOSIS_DATA_DIR", str(data_dir))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(data_dir))
    with cli_stack(server_loop, database, data_dir) as running:
        yield running


def done(*words: str, **more: str) -> Ran:
    ran = mitosis(*words, **more)
    assert ran.status == 0, ran.err
    return ran


def test_what_ran_is_recorded_and_simulated(stack: CliStack, tmp_path: Path) -> None:
    done("group", "create", "night", "--workers", "2", "--priority", "3", "--max-hosts", "4")
    done("group", "submit", "night", "--command-file", "-", stdin="true\n" * 3)
    stack.run_tasks([Outcome.SUCCEEDED, Outcome.FAILED])
    file = tmp_path / "night.jsonl"
    ran = done("simulate", "--record", str(file), "--since", "1h")
    assert f"1 hosts, 1 task groups and 2 tasks are in {file}" in ran.out

    workload = read_workload(file.read_bytes().splitlines())
    ((host,), (group,), (tasks,)) = workload.hosts, workload.groups, workload.tasks
    assert (host.name, group.hosts) == ("host-1", ["host-1"])
    assert group.user_group in host.user_groups
    assert (group.workers, group.priority, group.max_managers) == (2, 3, 4)
    assert tasks.seconds == [1.5, 1.5], "the third has not run"
    assert 3500 < group.at <= tasks.at + 1 <= workload.until + 1

    figures = done("simulate", "--workload", str(file), "--json").json
    assert figures["rules"]["worked_percent"] >= 0
    assert list(figures) == ["rules", "no-fair-share", "fifo", "always-preempt"]


def test_task_groups_before_that_time_are_left_out(stack: CliStack, tmp_path: Path) -> None:
    done("group", "create", "old")
    file = tmp_path / "none.jsonl"
    ran = done("simulate", "--record", str(file), "--since", "1ms")
    assert "0 hosts, 0 task groups and 0 tasks" in ran.out
