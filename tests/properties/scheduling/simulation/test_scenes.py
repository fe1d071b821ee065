"""Ten scenes in which simpler rules failed: hosts move seldom, and nothing waits for ever.

The numbers of simpler rules are from design experiments: they say what each scene is about.
"""

import pytest

from mitosis.scheduling.actions import EndReason
from mitosis.scheduling.policy import Policy
from tests.support.simulation import DAY, HOUR, MINUTE, Scene

ENDLESS = 4_000
WEEK = 7 * DAY


def endless(scene: Scene, name: str, *, at: float = 0.0, team: int = 1) -> None:
    scene.group(name, at=at, team=team, setup_seconds=600, teardown_seconds=30, workers=4)
    scene.tasks(name, ENDLESS * 4, 10 * MINUTE, at)


@pytest.mark.spec("C-31", "C-36", "S002-174")
@pytest.mark.parametrize("hosts", [3, 5])
def test_a_two_endless_groups_share_hosts_and_then_stay(hosts: int) -> None:
    """Rules that give a freed host to the older group moved 56 times a day, and the other one got nothing."""
    scene = Scene(hosts, WEEK)
    endless(scene, "old")
    endless(scene, "young", at=HOUR, team=2)
    accounts = scene.run()
    assert scene.wait("young") < 4 * HOUR
    assert accounts.ends.total() <= hosts, "the odd host does not move for ever"
    first, second = scene.share("old", "young")
    assert min(first, second) > hosts // 2 * 0.8
    assert (accounts.setup_seconds + accounts.drain_seconds) / WEEK / hosts < 0.01


@pytest.mark.spec("C-31", "S002-174")
def test_b_two_endless_groups_on_one_host_take_turns() -> None:
    """18 moves a day were lost to setups and drains, and the second group got nothing."""
    scene = Scene(1, WEEK)
    endless(scene, "old")
    endless(scene, "young", at=HOUR, team=2)
    accounts = scene.run()
    assert scene.wait("young") < 4 * HOUR + 20 * MINUTE
    assert min(scene.share("old", "young")) > 0.4
    assert accounts.ends[EndReason.AFFINITY] <= 8 * 7
    assert accounts.setup_seconds / WEEK < 0.06


def test_c_inside_one_user_group_both_groups_get_hosts() -> None:
    scene = Scene(2, DAY)
    endless(scene, "old")
    endless(scene, "young", at=HOUR)
    scene.run()
    assert scene.wait("young") < 4 * HOUR
    assert min(scene.share("old", "young")) > 0.8


def test_d_long_tasks_run_on_as_many_hosts_as_they_fill() -> None:
    """A rule that counts full leases against ready tasks took 32 hours."""
    scene = Scene(10, 2 * DAY)
    scene.group("long", closed_at=None, workers=8, setup_seconds=300)
    scene.tasks("long", 8, 4 * HOUR)
    scene.tasks("long", 40, 4 * HOUR, at=5 * HOUR)
    accounts = scene.run()
    group = scene.found("long")
    assert group.ended == 48
    assert accounts.setups == 5
    ((_, seconds),) = accounts.turnarounds
    assert seconds < 9 * HOUR + 20 * MINUTE, "all at once, after the setups"


def test_e_short_tasks_do_not_prepare_a_hundred_hosts() -> None:
    """2,000 tasks of a second took 100 leases with setups of 5 minutes."""
    scene = Scene(100, DAY)
    scene.group("short", workers=8, setup_seconds=300)
    scene.tasks("short", 8, 1)
    scene.tasks("short", 2_000, 1, at=HOUR)
    accounts = scene.run()
    assert accounts.setups == 1
    assert scene.found("short").ended == 2_008


def preempting(seconds: float) -> Scene:
    """A host renewed for a low priority 5 minutes before a high one comes; tasks of so many seconds."""
    scene = Scene(1, 2 * DAY)
    scene.group("low", priority=-100, workers=8)
    scene.tasks("low", 8_000, seconds)
    scene.group("high", at=HOUR + 5 * MINUTE, team=2, priority=100)
    scene.tasks("high", 10, MINUTE, at=HOUR + 5 * MINUTE)
    return scene


@pytest.mark.spec("C-31")
def test_f_a_renewed_lease_does_not_bind_against_a_group_without_any_host() -> None:
    """It waited for the next end of the affinity: 63 minutes, or 190."""
    scene = preempting(3 * MINUTE)
    accounts = scene.run()
    assert scene.wait("high") <= 8 * MINUTE
    assert accounts.ends[EndReason.AFFINITY] == 1


def test_g_running_tasks_are_waited_for_and_no_longer() -> None:
    scene = preempting(20 * HOUR)
    scene.run()
    assert scene.wait("high") == pytest.approx(20 * HOUR - (HOUR + 5 * MINUTE), abs=MINUTE)


@pytest.mark.spec("C-35", "C-36", "S000-155")
def test_h_groups_with_short_bursts_share_a_host_within_the_limit_of_moves() -> None:
    """The second waited 40 hours, since no pause of the first reached the idle threshold."""
    scene = Scene(1, DAY)
    for name, team, at in (("old", 1, 0.0), ("young", 2, HOUR)):
        scene.group(name, at=at, team=team, setup_seconds=60, teardown_seconds=10)
        times = int((DAY - at) // (6 * MINUTE))
        for number in range(times):
            scene.tasks(name, 1, 2 * MINUTE, at + number * 6 * MINUTE)
    accounts = scene.run()
    assert scene.wait("young") <= 2 * HOUR
    moves = accounts.ends[EndReason.IDLE] + accounts.ends[EndReason.AFFINITY]
    assert moves <= 24 * 6
    assert accounts.setups <= 90
    assert accounts.longest_leaseless <= 2 * HOUR


def test_i_one_need_ends_one_of_ten_idle_leases() -> None:
    """Seven leases ended for it, one in each round until the first teardown was over."""
    scene = Scene(10, DAY)
    scene.group("idle", workers=1, teardown_seconds=60)
    scene.tasks("idle", 20, 5 * MINUTE)
    scene.group("one", at=HOUR, team=2)
    scene.tasks("one", 1, MINUTE, at=HOUR)
    accounts = scene.run()
    assert accounts.ends[EndReason.IDLE] == 1
    assert scene.wait("one") <= 10


def overloaded() -> Scene:
    scene = Scene(2, 26 * HOUR)
    for number in range(26):
        name = f"busy-{number}"
        scene.group(name, at=number * HOUR, setup_seconds=60)
        scene.tasks(name, 13, 10 * MINUTE, at=number * HOUR)
    scene.group("low", priority=-10, team=2, at=HOUR)
    scene.tasks("low", 1, 10 * MINUTE, at=HOUR)
    return scene


@pytest.mark.spec("C-31")
def test_j_a_group_that_has_starved_for_a_day_goes_first() -> None:
    scene = overloaded()
    scene.run()
    assert DAY <= scene.wait("low") <= DAY + HOUR


def test_j_without_that_rule_it_waits_for_ever() -> None:
    scene = overloaded()
    scene.run(Policy(starve_after_seconds=None))
    assert scene.found("low").first_offer_at is None
