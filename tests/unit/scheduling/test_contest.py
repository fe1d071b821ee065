"""When a waiting task group takes a host from another one: each rule in a fleet of a few hosts."""

import pytest

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.actions import EndLease, EndReason, WakeReason
from mitosis.scheduling.facts import Capacity, Failure, Progress
from mitosis.scheduling.policy import Order, Policy, Preemption
from tests.support.scheduling import HOUR, NOW, OTHERS, USERS, Fleet

MINUTE = 60.0


def taken(fleet: Fleet, now: float = NOW) -> list[tuple[int, int | None, str]]:
    return [(end.host, end.for_group, end.reason.value) for end in fleet.ends(now)]


# --- idle leases (C-03, C-35) ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("teardown", "setup", "threshold"),
    [(0.0, 0.0, 180.0), (100.0, 79.0, 180.0), (100.0, 200.0, 300.0), (900.0, 900.0, 600.0)],
)
@pytest.mark.parametrize("priority", [-5, 0, 5])
def test_an_idle_host_goes_to_any_group_after_the_threshold_of_the_pair(
    teardown: float, setup: float, threshold: float, priority: int
) -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0, unfinished=1, teardown_seconds=teardown)
    fleet.group(2, setup_seconds=setup, priority=priority)
    lease = fleet.idle(1, 1, since=threshold - 0.01)
    assert fleet.ends() == []
    fleet.change_lease(lease, idle_since=NOW - threshold)
    (end,) = fleet.ends()
    assert end.reason is EndReason.IDLE
    assert (end.lease, end.for_group, end.ask_back_at) == (lease, 2, NOW)
    assert (end.since, end.threshold_seconds) == (NOW - threshold, threshold)
    assert end.cost_seconds == teardown + setup


def test_an_idle_lease_stays_while_no_other_group_waits() -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0)
    fleet.group(2, ready=0)
    fleet.idle(1, 1, since=2 * HOUR)
    assert fleet.decide() == []


def test_the_threshold_is_set_by_the_group_that_holds_the_host() -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0, leases=LeaseTerms(idle_threshold=20.0, longest_idle=20.0))
    fleet.group(2)
    fleet.idle(1, 1, since=20.0)
    assert taken(fleet) == [(1, 2, "idle")]


def test_a_lease_in_its_setup_or_with_work_is_not_idle() -> None:
    fleet = Fleet(2)
    fleet.group(1, ready=0, unfinished=1)
    fleet.group(2)
    fleet.lease(1, 1, progress=Progress.STARTING, taken_at=NOW - HOUR)
    fleet.lease(1, 2)
    assert fleet.ends() == []


def test_of_those_that_wait_the_best_gets_the_idle_host() -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0)
    fleet.group(2, priority=1)
    fleet.group(3, priority=2)
    fleet.idle(1, 1, since=HOUR)
    assert taken(fleet) == [(1, 3, "idle")]


def test_one_need_ends_one_of_many_idle_leases() -> None:
    fleet = Fleet(10)
    fleet.group(1, ready=0)
    for number in range(1, 11):
        fleet.idle(1, number, since=HOUR)
    fleet.group(2)
    assert len(fleet.ends()) == 1
    lease = fleet.ends()[0].lease
    fleet.change_lease(lease, state=LeaseState.ENDING, for_group=2, ending_since=NOW)
    assert fleet.ends(NOW + 10) == []


def test_the_one_with_the_shortest_setup_gets_a_host_that_is_not_idle_for_long() -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0)
    for number, setup in ((2, 500.0), (3, 190.0), (4, 500.0)):
        fleet.group(number, setup_seconds=setup)
    fleet.idle(1, 1, since=200.0)
    assert taken(fleet) == [(1, 3, "idle")]


@pytest.mark.parametrize(("since", "is_taken"), [(HOUR, True), (180.0, True), (179.0, False)])
def test_the_one_wanted_host_is_found_among_many_idle_ones(since: float, is_taken: bool) -> None:
    fleet = Fleet(12)
    fleet.group(1, ready=0)
    for number in range(1, 13):
        fleet.idle(1, number, since=since if number == 7 else 2 * HOUR)
    fleet.group(2, on=[7])
    assert [end.host for end in fleet.ends()] == [7] * is_taken


def test_the_cheapest_idle_host_is_taken_a_warm_one_before_all() -> None:
    fleet = Fleet(3)
    for number, teardown in ((1, 50.0), (2, 20.0), (3, 90.0)):
        fleet.group(number, ready=0, teardown_seconds=teardown)
        fleet.idle(number, number, since=HOUR)
    fleet.group(4, setup_seconds=100.0)
    assert taken(fleet) == [(2, 4, "idle")]
    fleet.host(3, warm=frozenset({4}))
    assert taken(fleet) == [(3, 4, "idle")]
    assert fleet.ends()[0].cost_seconds == 90.0


# --- affinity (C-31) --------------------------------------------------------------------------------------


def busy_fleet(**waiting: object) -> Fleet:
    """Host 1 works for task group 1, affinity over now; task group 2 waits."""
    fleet = Fleet(1)
    fleet.group(1, ready=5, teardown_seconds=10.0)
    fleet.lease(1, 1, affinity_until=NOW)
    fleet.group(2, **{"ready": 1, "setup_seconds": 50.0, **waiting})  # type: ignore[arg-type]
    return fleet


def test_at_the_end_of_the_affinity_a_higher_priority_takes_the_host_after_the_grace() -> None:
    fleet = busy_fleet(priority=1)
    assert taken(fleet, NOW - 0.01) == []
    (end,) = fleet.ends()
    assert (end.host, end.for_group, end.reason) == (1, 2, EndReason.AFFINITY)
    assert end.ask_back_at == NOW + 300.0
    assert end.since == NOW
    assert end.rank is not None
    assert end.rank.order == -1
    assert fleet.renewals() == []


def test_otherwise_the_lease_is_renewed() -> None:
    fleet = busy_fleet(priority=-1)
    assert fleet.ends() == []
    (renewal,) = fleet.renewals()
    assert renewal.until == NOW + HOUR


def test_of_equal_priority_a_user_group_without_a_lease_takes_it() -> None:
    assert taken(busy_fleet(user_group=OTHERS)) == [(1, 2, "affinity")]


@pytest.mark.parametrize(("theirs", "mine", "wins"), [(3, 1, True), (2, 1, False), (2, 0, True)])
@pytest.mark.parametrize("user_group", [1, OTHERS])
def test_of_equal_priority_two_leases_fewer_are_enough_one_is_not(
    theirs: int, mine: int, wins: bool, user_group: int
) -> None:
    fleet = Fleet(theirs + mine)
    fleet.group(1, ready=100)
    fleet.group(2, ready=100, user_group=user_group)
    for number in range(1, theirs + 1):
        fleet.lease(1, number, affinity_until=NOW)
    for number in range(theirs + 1, theirs + mine + 1):
        fleet.lease(2, number, affinity_until=NOW + HOUR)
    assert (len(fleet.ends()) > 0) == wins
    assert len(fleet.ends()) <= 1


def test_hosts_move_until_the_shares_are_even_and_no_further() -> None:
    fleet = Fleet(6)
    fleet.group(1, ready=100)
    for number in range(1, 7):
        fleet.lease(1, number, affinity_until=NOW)
    fleet.group(2, ready=100, user_group=OTHERS)
    assert len(fleet.ends()) == 3
    assert len(fleet.renewals()) == 3


def test_a_renewed_lease_stays_contestable_for_a_group_without_any_host() -> None:
    fleet = Fleet(2)
    fleet.host(2, in_contact=False)
    fleet.group(1, ready=100)
    fleet.lease(1, 1, affinity_until=NOW + HOUR, renewed=True)
    fleet.group(2, ready=100, priority=1)
    assert taken(fleet) == [(1, 2, "affinity")]
    fleet.lease(2, 2)
    assert fleet.ends() == []


def test_the_weakest_holder_loses_and_of_its_hosts_the_cheapest() -> None:
    fleet = Fleet(4)
    weak = {"ready": 0, "unfinished": 9, "priority": -1, "task_seconds": 1000.0}
    fleet.group(1, workers=8, **weak)  # type: ignore[arg-type]
    fleet.group(2, workers=1, teardown_seconds=500.0, **weak)  # type: ignore[arg-type]
    fleet.group(3, ready=0, unfinished=9)
    for number, holder in enumerate((1, 3, 2, 1), start=1):
        fleet.lease(holder, number, affinity_until=NOW)
    fleet.group(4, priority=5)
    (end,) = fleet.ends()
    assert (end.host, end.cost_seconds) == (3, 500.0)


def test_a_host_moved_six_times_in_an_hour_waits_until_the_hour_is_over() -> None:
    fleet = busy_fleet(priority=1)
    moves = tuple(NOW - HOUR + 1 + n for n in range(6))
    fleet.host(1, moved_at=moves)
    assert fleet.ends() == []
    wake = fleet.wake()
    assert wake is not None
    assert (wake.at, wake.reason) == (NOW + 1, WakeReason.MOVES)
    assert taken(fleet, NOW + 1) == [(1, 2, "affinity")]


def test_an_idle_host_is_taken_however_often_it_was_moved() -> None:
    """It is at its end of work, which waits for no limit and counts for none (C-36)."""
    fleet = Fleet(1)
    fleet.group(1, ready=0)
    lease = fleet.idle(1, 1, since=HOUR)
    fleet.host(1, moved_at=(NOW - 60.0,) * 6)
    fleet.group(2, priority=-1)
    assert taken(fleet) == [(1, 2, "idle")]
    fleet.change_lease(lease, idle_since=NOW)
    assert fleet.ends() == []
    wake = fleet.wake()
    assert wake is not None
    assert (wake.at, wake.reason) == (NOW + 180.0, WakeReason.IDLE)


def test_a_starved_group_takes_the_host_of_a_higher_priority() -> None:
    fleet = busy_fleet(priority=-5, hostless_since=NOW - 24 * HOUR)
    assert taken(fleet) == [(1, 2, "affinity")]


@pytest.mark.parametrize(
    "facts",
    [
        {"in_contact": False},
        {"serves": frozenset[int]({OTHERS})},
        {"cores": ()},
    ],
)
def test_only_a_host_that_may_serve_the_group_is_taken(facts: dict[str, object]) -> None:
    fleet = busy_fleet(priority=1)
    if "cores" in facts:
        fleet.change_group(2, demand=Capacity(2))
        facts = {}
    fleet.host(1, **facts)
    assert [end for end in fleet.ends() if end.for_group is not None] == []


def test_the_next_weakest_holder_loses_if_the_weakest_has_no_host_for_the_group() -> None:
    fleet = Fleet(2)
    for number, priority in ((1, -1), (2, 0)):
        fleet.group(number, ready=0, unfinished=1, priority=priority)
        fleet.lease(number, number, affinity_until=NOW)
    fleet.group(3, priority=5, on=[2])
    assert taken(fleet) == [(2, 3, "affinity")]


def test_a_user_group_that_loses_a_host_is_served_earlier_in_the_same_round() -> None:
    fleet = Fleet(7)
    for number in range(1, 8):
        fleet.host(number, serves=frozenset({USERS, OTHERS, 3}))
    for group, user_group, hosts in ((1, USERS, (1, 2, 3)), (2, OTHERS, (4, 5, 6))):
        fleet.group(group, ready=0, unfinished=1, user_group=user_group)
        for number in hosts:
            fleet.lease(group, number, affinity_until=NOW if number == 1 else NOW + HOUR)
    fleet.group(3, ready=0, unfinished=1, user_group=3, priority=-1)
    fleet.lease(3, 7, affinity_until=NOW)
    fleet.group(4, on=[7], created_at=50.0)
    fleet.group(5, on=[7], created_at=40.0, user_group=OTHERS)
    assert taken(fleet) == [(7, 5, "affinity")]
    fleet.group(6, on=[1], user_group=3, priority=5)
    assert taken(fleet) == [(1, 6, "affinity"), (7, 4, "affinity")]


def test_a_host_that_failed_for_the_group_is_not_taken() -> None:
    fleet = busy_fleet(priority=1)
    kind = HostFailureKind.SETUP_FAILED
    fleet.host(1, failures=(Failure(group=2, group_name="g2", kind=kind, reason="exit code 3"),))
    assert fleet.ends() == []


def test_for_comparison_preemption_can_be_at_once_or_never() -> None:
    always = Fleet(1, Policy(preemption=Preemption.ALWAYS))
    never = Fleet(1, Policy(preemption=Preemption.NEVER))
    for fleet in (always, never):
        fleet.group(1, ready=5)
        fleet.lease(1, 1, affinity_until=NOW + HOUR if fleet is always else NOW)
        fleet.group(2, priority=1)
    assert taken(always) == [(1, 2, "affinity")]
    assert taken(never) == []


def test_without_fair_share_equal_priorities_take_nothing_from_each_other() -> None:
    fleet = Fleet(1, Policy(order=Order.PRIORITY))
    fleet.group(1, ready=5)
    fleet.lease(1, 1, affinity_until=NOW)
    fleet.group(2, user_group=OTHERS)
    assert fleet.ends() == []


def test_several_leases_of_a_host_are_ended_if_one_leaves_too_little_room() -> None:
    fleet = Fleet()
    fleet.host(1, capacity=Capacity(4, 8))
    for number, teardown in ((1, 30.0), (2, 10.0), (3, 20.0)):
        fleet.group(number, ready=0, demand=Capacity(1, 2), teardown_seconds=teardown)
        fleet.idle(number, 1, since=HOUR)
    fleet.group(4, demand=Capacity(1, 6))
    ends = fleet.ends()
    assert [fleet.snapshot.leases[end.lease].group for end in ends] == [2, 3]
    assert {end.cost_seconds for end in ends} == {30.0}
    fleet.change_group(4, demand=Capacity(1, 9))
    assert fleet.ends() == []


def test_contested_ends_are_known_by_their_reason() -> None:
    contested = {reason for reason in EndReason if reason.is_contested}
    assert contested == {EndReason.AFFINITY}
    assert EndLease(1, 1, EndReason.NO_WORK, NOW).asks_back


def test_a_group_that_loses_its_host_in_a_decision_may_take_a_renewed_lease_at_once() -> None:
    fleet = Fleet(2)
    fleet.group(1, priority=1, ready=5)
    fleet.group(2, ready=0, unfinished=1)
    fleet.lease(1, 1)
    fleet.lease(2, 2, affinity_until=NOW + HOUR, renewed=True)
    assert taken(fleet) == []
    fleet.host(1, draining=True)
    assert taken(fleet) == [(1, None, "draining"), (2, 1, "affinity")]


def test_a_group_whose_host_takes_too_long_to_come_may_take_a_renewed_lease() -> None:
    """It waits for more hosts than that one, so what it shares with others does not tell that it has none."""
    fleet = Fleet(2)
    fleet.group(1, priority=1, ready=5)
    fleet.group(2, ready=0, unfinished=1)
    fleet.lease(2, 2, affinity_until=NOW + HOUR, renewed=True)
    fleet.group(3, ready=0, unfinished=1)
    fleet.ending(3, 1, for_group=1, since=30 * MINUTE - 1)
    assert taken(fleet) == []
    assert taken(fleet, NOW + 1) == [(2, 1, "affinity")]


def test_a_group_that_none_could_serve_is_looked_at_again_when_another_one_took_a_host() -> None:
    """Its user group is short of hosts only after the other user group got one more."""
    fleet = Fleet(3, Policy(share_gap=1))
    for number in (1, 2, 3):
        fleet.host(number, serves=frozenset({USERS, OTHERS, 3}))
    fleet.group(8, priority=-1, ready=0, unfinished=1, user_group=3)
    fleet.group(9, ready=0, unfinished=1, user_group=OTHERS)
    fleet.group(7, ready=0, unfinished=1)
    for group, host in ((8, 1), (9, 2), (7, 3)):
        fleet.lease(group, host, affinity_until=NOW)
    fleet.group(1, on=[2])
    fleet.group(2, on=[1], user_group=OTHERS)
    fleet.group(3, on=[2])
    assert taken(fleet) == [(1, 2, "affinity"), (2, 3, "affinity")]
