"""What a simulation comes to: figures with known values, their mean, the table and the picture."""

from dataclasses import replace
from typing import Any
from xml.dom.minidom import parseString

import pytest

from mitosis.scheduling.actions import EndLease
from mitosis.scheduling.simulation.plot import svg
from mitosis.scheduling.simulation.result import Result, mean_of, quantile, result_of
from mitosis.scheduling.simulation.table import markdown, rows_of
from tests.support.simulation import DAY, HOUR, MINUTE, Scene, without


def simulated() -> Result:
    """One host with two workers: a setup of half an hour, tasks of 1 h and 3 h; a second task group waits."""
    scene = Scene(1, DAY)
    hooks: dict[str, Any] = {"setup_seconds": HOUR / 2, "teardown_seconds": 6 * MINUTE}
    scene.group("first", workers=2, closed_at=None, **hooks)
    scene.tasks("first", 1, HOUR)
    scene.tasks("first", 1, 3 * HOUR)
    scene.group("second", at=HOUR, team=2, priority=10, closed_at=None)
    scene.tasks("second", 1, 2 * HOUR, at=HOUR)
    return result_of(scene.workload, scene.run())


@pytest.mark.spec("S002-174")
def test_figures_have_the_values_that_follow_from_the_workload() -> None:
    found = simulated()
    assert found.setup_hours == 0.5
    assert found.teardown_hours == pytest.approx(0.1)
    assert found.worked_percent == pytest.approx(100 * (4 / 2 + 2) / 24)
    assert found.switch_percent == pytest.approx(100 * 0.6 / 24)
    assert (found.moves_idle, found.moves_busy) == (0, 1)
    waits = {wait.priority: wait for wait in found.waits}
    assert waits[0].p95_minutes == 0
    assert waits[10].p50_minutes == pytest.approx(156, abs=1), "a long task, then teardown"
    assert found.drain_hours == pytest.approx(2 / 2), "one of two workers, for two hours"
    assert found.ended_groups == 2
    assert found.turnaround_hours == pytest.approx(2.5 + 0.1 + 2, abs=0.05)
    assert found.longest_hostless_hours == pytest.approx(2.6)


@pytest.mark.spec("S002-174")
def test_stickiness_is_the_work_for_each_setup() -> None:
    found = simulated()
    assert found.hours_per_setup == pytest.approx(4 / 2), "4 hours of the host, prepared twice"
    assert found.setups_per_host_day == 2


def kept_idle() -> Scene:
    """A host is idle from 1,790 s on, and can be taken after 180 s; a task group waits from 1,830 s on."""
    scene = Scene(1, DAY)
    scene.group("first")
    scene.tasks("first", 1, HOUR / 2 - 10)
    scene.group("second", team=2, at=HOUR / 2 + 30)
    scene.tasks("second", 1, MINUTE, at=HOUR / 2 + 30)
    return scene


@pytest.mark.spec("S002-174")
def test_hosts_idle_while_work_waited_are_sampled_once_a_minute() -> None:
    scene = kept_idle()
    found = result_of(scene.workload, scene.run())
    assert found.idle_hours_while_waiting == pytest.approx(2 / 60), "samples at 1,860 and 1,920 s"
    assert found.idle_percent_while_waiting == pytest.approx(100 * 2 / (24 * 60))
    assert found.past_threshold_percent == 0
    assert (found.moves_idle, found.moves_busy) == (1, 0)


@pytest.mark.spec("S002-174")
def test_hosts_idle_past_the_threshold_are_found_also_between_rounds() -> None:
    """With a rule that never takes a host: 1,409 samples from 1,860 s on, 1,407 of them from 1,980 s on.

    At the end, the first task group closes: its host is being cleaned.
    """
    scene = kept_idle()
    accounts = scene.run(decision=without(EndLease), checked=False)
    found = result_of(scene.workload, accounts)
    assert found.idle_hours_while_waiting == pytest.approx(1_409 / 60)
    assert found.past_threshold_percent == pytest.approx(100 * 1_407 / (24 * 60))


@pytest.mark.spec("S002-174")
def test_fairness_is_jains_index_of_the_leases_of_user_groups_that_wait() -> None:
    """Three leases and one: 4 * 4 / (2 * (9 + 1)). A task group of another priority does not count."""
    scene = Scene(5, HOUR)
    for name, team, priority, hosts in (
        ("three", 1, 0, ["h1", "h2", "h3"]),
        ("one", 2, 0, ["h4"]),
        ("other", 2, 5, ["h5"]),
    ):
        scene.group(name, team=team, priority=priority, hosts=hosts)
        scene.tasks(name, 100, 10 * MINUTE)
    assert result_of(scene.workload, scene.run()).jain == pytest.approx(16 / 20)


def test_the_mean_of_results_is_that_of_each_figure() -> None:
    first = simulated()
    waits = [replace(wait, p50_minutes=wait.p50_minutes + 60) for wait in first.waits]
    second = replace(first, drain_hours=first.drain_hours + 2, waits=waits)
    mean = mean_of([first, second])
    assert mean.drain_hours == pytest.approx(first.drain_hours + 1)
    assert [wait.p50_minutes for wait in mean.waits] == [
        pytest.approx(wait.p50_minutes + 30) for wait in first.waits
    ]


@pytest.mark.parametrize(
    ("values", "share", "found"), [([], 0.5, 0), ([3, 1, 2], 0.5, 2), ([1, 2, 3, 4], 0.95, 4)]
)
def test_quantile(values: list[float], share: float, found: float) -> None:
    assert quantile(values, share) == found


def test_table_and_picture_show_each_policy() -> None:
    results = {"rules": simulated(), "fifo": simulated()}
    rows = rows_of(results)
    assert all(len(row) == 3 for row in rows)
    assert rows[-1][0] == "wait for the first host, priority 0: p50 / p95"
    lines = markdown(results).splitlines()
    assert lines[0] == "|  | rules | fifo |"
    assert len(lines) == len(rows) + 2
    picture = parseString(svg(results))  # noqa: S318 - written here
    texts = [text.toxml() for text in picture.getElementsByTagName("text")]
    for name in ("rules", "fifo", "priority 10"):
        assert any(f">{name}</text>" in text for text in texts)
