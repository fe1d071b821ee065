"""The next decision is due when the clock alone changes something for a task group that waits."""

from typing import Any

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.actions import WakeReason
from mitosis.scheduling.facts import Failure, Freed, Progress
from mitosis.scheduling.policy import Policy
from tests.support.scheduling import HOUR, NOW, OTHERS, Fleet

MINUTE = 60.0


def woken(fleet: Fleet, now: float = NOW) -> tuple[float, WakeReason] | None:
    """Seconds from now, and why."""
    wake = fleet.wake(now)
    return None if wake is None else (wake.at - now, wake.reason)


def busy_fleet(**waiting: Any) -> tuple[Fleet, int]:
    """Host 1 works for task group 1 for 7 more minutes at least; task group 2 waits."""
    fleet = Fleet(1)
    fleet.group(1, ready=5)
    lease = fleet.lease(1, 1, affinity_until=NOW + 7 * MINUTE)
    fleet.group(2, **waiting)
    return fleet, lease


def test_an_idle_lease_is_looked_at_when_it_is_idle_for_as_long_as_some_waiting_group_needs() -> (
    None
):
    fleet = Fleet(1)
    fleet.group(1, ready=0, teardown_seconds=200.0)
    for number, setup in ((2, 215.0), (3, 100.0), (4, 103.0), (5, 110.0)):
        fleet.group(number, setup_seconds=setup, on=[1] if number == 2 else [])
    fleet.group(6, setup_seconds=0.0, on=[])
    fleet.idle(1, 1, since=0.0)
    now, looks = NOW, []
    while not fleet.ends(now):
        wake = fleet.wake(now)
        assert wake is not None
        assert wake.reason is WakeReason.IDLE
        assert wake.at > now, "a decision that wakes at its own time would never end"
        looks.append(wake.at - NOW)
        now = wake.at
    assert looks == [200.0, 303.0, 310.0, 415.0], "300 and 303 count as one time"


def test_an_affinity_counts_if_some_group_that_waits_goes_first_then() -> None:
    assert woken(busy_fleet(priority=1)[0]) == (7 * MINUTE, WakeReason.AFFINITY)
    assert woken(busy_fleet(user_group=OTHERS)[0]) == (7 * MINUTE, WakeReason.AFFINITY)
    assert woken(busy_fleet(priority=-1)[0]) is None
    assert woken(busy_fleet(ready=0)[0]) is None
    assert woken(busy_fleet(priority=1, on=[])[0]) is None


def test_of_many_affinities_the_first_counts_of_a_host_that_is_wanted() -> None:
    fleet = Fleet(12)
    fleet.group(1, ready=5)
    leases = [fleet.lease(1, n, affinity_until=NOW + n * MINUTE) for n in range(1, 13)]
    fleet.group(2, priority=1, on=[7, 9])
    assert woken(fleet) == (7 * MINUTE, WakeReason.AFFINITY)
    fleet.change_lease(leases[6], progress=Progress.STARTING)
    assert woken(fleet) == (9 * MINUTE, WakeReason.AFFINITY)


def test_a_lease_whose_affinity_is_over_but_cannot_be_taken_wakes_at_its_next_one() -> None:
    fleet, lease = busy_fleet(priority=-1)
    fleet.change_lease(lease, affinity_until=NOW)
    assert woken(fleet) is None
    assert len(fleet.renewals()) == 1


def test_the_end_of_a_pause_after_a_failure() -> None:
    fleet = Fleet(1)
    kind = HostFailureKind.NO_PROGRESS
    pause = Failure(group=1, group_name="g1", kind=kind, reason="", next_at=NOW + 40)
    fleet.host(1, failures=(pause,))
    fleet.group(1)
    assert woken(fleet) == (40.0, WakeReason.FAILURE)
    assert woken(fleet, NOW + 40) is None
    assert fleet.offers(NOW + 40) == [(1, 1)]


def test_the_time_at_which_a_group_has_starved() -> None:
    fleet, _ = busy_fleet(priority=-1, hostless_since=NOW - 23 * HOUR)
    assert woken(fleet) == (HOUR, WakeReason.STARVED)
    off = Fleet(0, Policy(starve_after_seconds=None))
    off.group(2, hostless_since=NOW - HOUR)
    assert woken(off) is None


def test_the_time_at_which_a_host_on_its_way_no_longer_counts() -> None:
    fleet = Fleet(2)
    fleet.group(1, ready=0)
    fleet.group(2)
    fleet.ending(1, 1, for_group=2, since=600.0)
    assert woken(fleet) == (1200.0, WakeReason.ON_THE_WAY)
    assert fleet.offers(NOW + 1200) == [(2, 2)]
    fleet.host(2, freed_for=(Freed(9, NOW - 100),))
    assert woken(fleet) == (200.0, WakeReason.ON_THE_WAY)


def test_the_time_at_which_a_delayed_attempt_is_due() -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0, delayed_until=NOW + 30)
    assert woken(fleet) == (30.0, WakeReason.DELAYED)


def test_nothing_is_due_where_nothing_waits() -> None:
    assert woken(Fleet(3)) is None


def test_an_affinity_is_of_no_use_to_the_group_that_holds_all_leases_of_its_rank() -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=9)
    fleet.lease(1, 1, affinity_until=NOW + 7 * MINUTE)
    assert woken(fleet) is None
    fleet.group(2)
    assert woken(fleet) == (7 * MINUTE, WakeReason.AFFINITY)


def test_the_threshold_of_an_idle_lease_that_this_decision_ends_is_no_time_to_decide() -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0, unfinished=1)
    fleet.group(2, priority=1)
    fleet.group(3, setup_seconds=300.0)
    fleet.idle(1, 1, since=200.0)
    (end,) = fleet.ends()
    assert (end.for_group, fleet.wake()) == (2, None)
