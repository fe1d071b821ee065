"""`mitosis simulate` without any server: workloads, policies, settings, files and refusals."""

import json
from pathlib import Path

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.scheduling.simulation.recording import read_workload
from tests.support.command import Ran, mitosis

pytestmark = pytest.mark.usefixtures("no_stack_here")

SMALL = ("--hosts", "6", "--days", "0.5", "--load", "1.5", "--seed", "4")


def done(*words: str, **more: str) -> Ran:
    ran = mitosis("simulate", *words, **more)
    assert ran.status == 0, ran.err
    return ran


def test_all_policies_are_compared() -> None:
    ran = done(*SMALL)
    assert ran.out.split("\n")[0].split() == ["rules", "no-fair-share", "fifo", "always-preempt"]
    assert "hosts idle while work waited" in ran.out


def test_a_saved_workload_comes_to_the_same_and_is_drawn(tmp_path: Path) -> None:
    saved, plot = tmp_path / "w.jsonl", tmp_path / "p.svg"
    first = done(*SMALL, "--policy", "rules", "--save", str(saved), "--json").json
    again = done("--workload", str(saved), "--policy", "rules", "--plot", str(plot), "--json").json
    timed = {"decide_ms", "longest_decide_ms"}
    for figure in first["rules"].keys() - timed:
        assert again["rules"][figure] == first["rules"][figure], figure
    assert len(read_workload(saved.read_bytes().splitlines()).hosts) == 6
    assert plot.read_text().startswith("<svg ")


def test_the_rules_have_the_settings_of_the_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        {"kind": "workload", "until": 20_000},
        {"kind": "host", "name": "h", "user_groups": ["team"]},
        {"kind": "group", "name": "low", "user_group": "team", "at": 0},
        {"kind": "tasks", "group": "low", "at": 0, "seconds": [60] * 300},
        {"kind": "group", "name": "high", "user_group": "team", "at": 60, "priority": 9},
        {"kind": "tasks", "group": "high", "at": 60, "seconds": [60]},
    ]
    words = ("--workload", "-", "--policy", "rules", "--json")
    text = "\n".join(json.dumps(line) for line in lines)

    def waited() -> float:
        waits = done(*words, stdin=text).json["rules"]["waits"]
        return float(next(wait for wait in waits if wait["priority"] == 9)["p50_minutes"])

    assert waited() == pytest.approx(59, abs=2), "one hour from the first offer on"
    monkeypatch.setenv("MITOSIS_SCHEDULING__LEASE_DURATION_SECONDS", "7200")
    assert waited() == pytest.approx(119, abs=2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--workload", "none.jsonl"), "--workload: cannot read none.jsonl"),
        (("--workload", "-", "--hosts", "3"), "--workload: cannot be used with --hosts"),
        (("--record", "f", "--policy", "fifo"), "--record: cannot be used with --policy"),
        (("--since", "2d"), "--since: is only for --record"),
        (("--plot", "/nowhere/p.svg", *SMALL), "--plot: cannot write /nowhere/p.svg"),
        (("--workload", "-"), '--workload: -: a workload has exactly one line {"kind": "workload"'),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_option(words: tuple[str, ...], line: str) -> None:
    ran = mitosis("simulate", *words, stdin="")
    assert ran.status == ExitStatus.INVALID
    assert line in ran.err


def test_a_workload_without_a_task_group_is_refused(tmp_path: Path) -> None:
    few = mitosis("simulate", "--hosts", "2", "--days", "0.01")
    assert few.status == ExitStatus.INVALID
    assert "--days: no task group begins in this time on so few hosts" in few.err
    lines = [{"kind": "workload", "until": 9}, {"kind": "host", "name": "h", "user_groups": ["t"]}]
    text = "\n".join(map(json.dumps, lines))
    none = mitosis("simulate", "--workload", "-", stdin=text)
    assert none.status == ExitStatus.INVALID
    assert "--workload: - has no task groups" in none.err
