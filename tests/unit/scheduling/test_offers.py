"""Free hosts go to the task groups that wait, best first."""

import pytest

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.actions import Offer, WakeReason
from mitosis.scheduling.facts import Capacity, Failure, Freed, Progress
from mitosis.scheduling.policy import Order, Policy
from tests.support.scheduling import HOUR, NOW, OTHERS, USERS, Fleet


def test_the_higher_priority_is_served_first() -> None:
    fleet = Fleet(1)
    fleet.group(1, priority=-1)
    fleet.group(2, priority=5)
    fleet.group(3, priority=4)
    assert fleet.offers() == [(2, 1)]


def test_of_equal_priority_the_user_group_with_fewer_leases_goes_first() -> None:
    fleet = Fleet(6)
    fleet.group(1, ready=100)
    fleet.group(2, ready=100, user_group=OTHERS)
    fleet.lease(1, 1)
    fleet.lease(1, 2)
    assert fleet.offers() == [(2, 3), (2, 4), (1, 5), (2, 6)]


def test_within_a_user_group_the_task_group_with_fewer_leases_goes_first_then_the_elder() -> None:
    fleet = Fleet(4)
    fleet.group(1, ready=100)
    fleet.group(2, ready=100, created_at=50.0)
    fleet.group(3, ready=100, created_at=40.0)
    fleet.lease(1, 1)
    assert fleet.offers() == [(3, 2), (2, 3), (1, 4)]


def test_for_comparison_the_order_can_be_priority_and_age_or_age_alone() -> None:
    for order, expected in ((Order.PRIORITY, [(2, 2), (2, 3)]), (Order.AGE, [(1, 2), (1, 3)])):
        fleet = Fleet(3, Policy(order=order))
        fleet.group(1, ready=100)
        fleet.group(2, ready=100, priority=1, user_group=OTHERS)
        fleet.lease(2 if order is Order.PRIORITY else 1, 1)
        assert fleet.offers() == expected


def test_a_group_that_starved_goes_before_all_until_it_has_one_host() -> None:
    fleet = Fleet(3)
    fleet.group(1, ready=100, priority=100, user_group=OTHERS)
    fleet.group(2, ready=100, priority=-100, hostless_since=NOW - 24 * HOUR)
    assert fleet.offers() == [(2, 1), (1, 2), (1, 3)]
    fleet.work(2, hostless_since=NOW - 24 * HOUR + 1)
    assert fleet.offers() == [(1, 1), (1, 2), (1, 3)]
    off = Fleet(1, Policy(starve_after_seconds=None))
    off.group(1, priority=100)
    off.group(2, hostless_since=0.0)
    assert off.offers() == [(1, 1)]


def test_warm_hosts_go_first_and_those_warm_for_others_last() -> None:
    fleet = Fleet(4)
    fleet.host(1, warm=frozenset({9}))
    fleet.host(2, warm=frozenset({8, 9}))
    fleet.host(4, warm=frozenset({1, 8, 9}))
    fleet.group(1, ready=100)
    assert fleet.offers() == [(1, 4), (1, 3), (1, 1), (1, 2)]


def test_hosts_that_failed_at_something_go_last_also_when_they_are_tried_again() -> None:
    fleet = Fleet(3)
    fleet.group(1, ready=100)
    due = Failure(
        group=1, group_name="g1", kind=HostFailureKind.NO_PROGRESS, reason="", next_at=NOW - 1
    )
    fleet.host(1, failures=(due,), warm=frozenset({1}))
    fleet.host(2, failures=(Failure(group=9, group_name="", kind=due.kind, reason=""),))
    assert fleet.offers() == [(1, 2), (1, 3), (1, 1)]


def test_hosts_that_a_choosier_group_needs_are_spared() -> None:
    fleet = Fleet(2)
    fleet.group(1, priority=5)
    fleet.group(2, on=[1])
    assert fleet.offers() == [(1, 2), (2, 1)]


def test_a_freed_host_is_offered_to_its_group_first() -> None:
    fleet = Fleet(1)
    fleet.group(1, priority=100)
    fleet.group(2)
    fleet.host(1, freed_for=(Freed(2, NOW - 1),))
    (offer,) = (a for a in fleet.decide() if isinstance(a, Offer))
    assert (offer.group, offer.host, offer.freed) == (2, 1, True)


def test_a_freed_host_goes_to_others_if_its_group_needs_or_may_use_it_no_longer() -> None:
    fleet = Fleet(1)
    fleet.group(1)
    fleet.group(2, ready=0)
    fleet.host(1, freed_for=(Freed(2, NOW - 1),))
    assert fleet.offers() == [(1, 1)]
    fleet.group(2, on=[], priority=9)
    assert fleet.offers() == [(1, 1)]


def test_of_two_freed_hosts_one_is_offered_if_one_is_enough() -> None:
    fleet = Fleet(2)
    fleet.group(1)
    for number in (1, 2):
        fleet.host(number, freed_for=(Freed(1, NOW - 1),))
    assert fleet.offers() == [(1, 1)]


def test_a_freed_host_was_counted_before_it_was_offered() -> None:
    fleet = Fleet(2)
    fleet.group(1, ready=4)
    fleet.host(2, freed_for=(Freed(1, NOW - 1),))
    assert fleet.offers() == [(1, 2), (1, 1)]


@pytest.mark.parametrize("left", [1.0, 2e-6, 5e-7, 0.0, -1.0])
def test_a_freed_host_counts_once_at_each_moment_near_the_end_of_its_time(left: float) -> None:
    """Times are compared within a microsecond: what has just ended for one count has not for the other."""
    fleet = Fleet(2)
    fleet.group(1, ready=100, max_managers=1)
    counted_since = NOW + left - Policy().freed_counts_seconds
    fleet.host(1, freed_for=(Freed(1, counted_since),))
    assert len(fleet.offers()) == 1


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"unclean": frozenset({9})}, []),
        ({"unclean": frozenset({9}), "freed_for": (Freed(1, NOW - 300),)}, [(1, 2)]),
        ({"in_contact": False}, [(1, 2)]),
        ({"serves": frozenset[int]()}, [(1, 2)]),
    ],
)
def test_a_host_on_its_way_counts_while_it_can_still_be_offered(
    facts: dict[str, object], expected: list[tuple[int, int]]
) -> None:
    fleet = Fleet(2)
    fleet.group(1)
    fleet.host(1, **{"freed_for": (Freed(1, NOW - 299),), **facts})
    assert fleet.offers() == expected


def test_a_lease_being_ended_for_a_group_counts_for_it_but_not_for_ever() -> None:
    fleet = Fleet(2)
    fleet.group(1, user_group=OTHERS)
    fleet.group(2, ready=0)
    lease = fleet.ending(2, 2, for_group=1)
    assert fleet.offers() == []
    fleet.change_lease(lease, ending_since=NOW - 30 * 60)
    assert fleet.offers() == [(1, 1)]


def test_a_group_gets_as_many_hosts_as_it_can_use_and_no_more_than_max_managers() -> None:
    fleet = Fleet(9)
    fleet.group(1, ready=10, workers=2)
    assert len(fleet.offers()) == 3
    fleet.group(1, ready=10, workers=2, max_managers=2)
    assert len(fleet.offers()) == 2
    fleet.lease(1, 9, progress=Progress.STUCK)
    assert len(fleet.offers()) == 1


def test_leases_share_a_host_while_each_of_its_capacities_suffices() -> None:
    fleet = Fleet()
    fleet.host(1, capacity=Capacity(4, 8, 100, 1))
    fleet.group(1, ready=100, demand=Capacity(1, 3, 10, 0), max_managers=2, priority=2)
    fleet.group(2, ready=100, demand=Capacity(1, 1, 80, 0), priority=1)
    fleet.group(3, ready=100, demand=Capacity(1, 1, 0, 1))
    assert fleet.offers() == [(1, 1), (1, 1), (2, 1), (3, 1)]
    fleet.host(1, capacity=Capacity(4, 4, 100, 1))
    assert fleet.offers() == [(1, 1), (2, 1)]


def test_a_round_returns_so_many_actions_and_the_next_one_the_rest() -> None:
    fleet = Fleet(5, Policy(actions_per_round=2))
    fleet.group(1, ready=100)
    assert fleet.offers() == [(1, 1), (1, 2)]
    wake = fleet.wake()
    assert wake is not None
    assert (wake.at, wake.reason) == (NOW, WakeReason.MORE)


def test_the_offer_says_with_which_rank_the_host_was_taken() -> None:
    fleet = Fleet(2)
    fleet.group(1, ready=100, priority=7)
    fleet.lease(1, 1)
    (offer,) = (a for a in fleet.decide() if isinstance(a, Offer))
    assert offer.rank == (-7, 1, 1, 1.0, 1)
    assert USERS == 1
