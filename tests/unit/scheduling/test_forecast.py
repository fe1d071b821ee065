"""What a task group would get, when it would begin and end."""

import math
from typing import Any

import pytest

from mitosis.scheduling.bands import AT_ONCE, UNKNOWN, Band, Measured, exactly, measured_band
from mitosis.scheduling.facts import Group, Work
from mitosis.scheduling.forecast import Durations, GroupForecast, forecast_group
from tests.support.scheduling import HOUR, NOW, USERS, Fleet

NEW = 99
SETUP, TEARDOWN, TASK = exactly(60.0), exactly(30.0), exactly(100.0)


def forecast(
    fleet: Fleet, *, ready: int = 40, durations: Durations | None = None, **facts: Any
) -> GroupForecast:
    members = fleet.snapshot.host_set(fleet.snapshot.hosts)
    given: dict[str, Any] = {"workers": 4, "members": members, "created_at": NOW, **facts}
    group = Group(number=NEW, name="new", user_group=USERS, user_group_name="users", **given)
    known = durations or Durations(setup=SETUP, teardown=TEARDOWN, task=TASK)
    return forecast_group(fleet.snapshot, NOW, group, Work(ready=ready, unfinished=ready), known)


def obstacles(found: GroupForecast) -> list[str]:
    return [host.obstacle.code if host.obstacle else "gets" for host in found.hosts]


def test_free_hosts_are_given_as_far_as_there_is_work() -> None:
    fleet = Fleet(hosts=3)
    found = forecast(fleet, ready=10)  # two tasks per worker: 8 per host
    assert obstacles(found) == ["gets", "gets", "enough"]
    assert (found.gets, found.useful) == (2, 2)
    assert found.begins == exactly(60.0)
    assert found.ends == exactly(60.0 + 2 * 100.0), "ten tasks on eight workers"
    assert found.host_time == exactly(2 * 90.0 + 2.5 * 100.0)
    assert found.smallest is None
    assert NEW not in fleet.snapshot.groups


def test_more_hosts_may_come_later_so_it_may_end_sooner() -> None:
    fleet = Fleet(hosts=1)
    found = forecast(fleet, ready=40)
    assert (found.gets, found.useful) == (1, 5)
    assert found.ends == Band(60.0 + 2 * 100.0, 60.0 + 10 * 100.0, 60.0 + 10 * 100.0)


def test_a_busy_host_is_free_when_its_affinity_ends_and_its_tasks_have_ended() -> None:
    fleet = Fleet(hosts=1)
    fleet.group(1, ready=0, unfinished=4, tasks_measured=10, task_seconds=50.0)
    fleet.lease(1, 1)
    found = forecast(fleet, priority=5)
    assert obstacles(found) == ["busy"]
    assert found.begins == Band(HOUR / 2 + 60.0, HOUR / 2 + 50.0 + 60.0, math.inf)
    never = forecast(fleet, priority=-5)
    assert (never.begins, never.ends) == (None, None), (
        "one that does not go first waits for its end"
    )
    assert never.smallest is not None


def test_a_host_out_of_reach_is_listed_with_its_first_obstacle() -> None:
    fleet = Fleet(hosts=3)
    fleet.host(1, draining=True)
    fleet.host(2, in_contact=False)
    fleet.host(3, serves=frozenset())
    found = forecast(fleet)
    assert obstacles(found) == ["draining", "no_contact", "no_role"]
    assert found.begins is None
    assert found.smallest is not None


def test_what_was_not_measured_has_no_expected_time() -> None:
    unknown = Durations(setup=Band(0.0, None, 600.0), teardown=AT_ONCE, task=None)
    found = forecast(Fleet(hosts=1), durations=unknown)
    assert (found.begins, found.ends, found.host_time) == (Band(0.0, None, 600.0), None, None)


@pytest.mark.parametrize(
    ("means", "band"),
    [
        ([], None),
        ([Measured(9.0, 0)], None),
        ([Measured(10.0, 4)], Band(5.0, 10.0, 20.0)),
        ([Measured(10.0, 3), Measured(30.0, 1)], Band(10.0, 15.0, 30.0)),
    ],
)
def test_a_band_rests_on_all_runs(means: list[Measured], band: Band | None) -> None:
    assert measured_band(means) == band


def test_sums_and_products_of_what_is_not_known_are_not_known() -> None:
    assert exactly(5.0).plus(UNKNOWN) == Band(5.0, None, math.inf)
    assert UNKNOWN.times(1, 2, 0) == Band(0.0, None, 0.0)
