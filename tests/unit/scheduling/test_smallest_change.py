"""The smallest change of an explanation: it leads to a lease, and nothing smaller does."""

import pytest
from pydantic import TypeAdapter, ValidationError

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.http import Int32
from mitosis.scheduling.changes import PRICES, ChangeKind
from mitosis.scheduling.explain import explain_group
from mitosis.scheduling.explain_host import explain_host
from mitosis.scheduling.facts import Capacity, Failure, Freed, Progress
from mitosis.scheduling.remedies import MOST_PRIORITY, priority_above
from tests.support.scheduling import NOW, Fleet

WAITING = 1


def line(fleet: Fleet, group: int = WAITING) -> str | None:
    found = explain_group(fleet.snapshot, NOW, group).smallest
    return None if found is None else found.line


def test_the_wait_comes_last_since_the_lease_is_renewed_for_those_who_come_later() -> None:
    fleet = Fleet(1)
    fleet.group(2, priority=5, unfinished=5)
    fleet.lease(2, 1, affinity_until=NOW + 150)
    fleet.group(WAITING)
    assert line(fleet) == (
        "set the priority of g1 to 5, then wait 2 min 30 s: the affinity of the lease on h1 is over then"
    )


def test_the_wait_is_for_the_lease_that_is_idle_for_long_enough_first() -> None:
    """After the least threshold, which its setup exceeds, and before a lease that is asked first."""
    fleet = Fleet(2)
    fleet.group(2, unfinished=5)
    fleet.lease(2, 1, progress=Progress.ROOM, idle_since=NOW - 1, affinity_until=NOW + 1000)
    fleet.lease(2, 2, progress=Progress.ROOM, idle_since=NOW - 250, affinity_until=NOW + 1000)
    fleet.host(2, unclean=frozenset({2}))
    fleet.group(WAITING, setup_seconds=300.0)
    assert line(fleet) == "wait 50 s: h2 will have been idle for long enough"


@pytest.mark.parametrize(
    ("tag_match", "change"),
    [("all", "tag c on h2 and refresh"), ("any", "tag a on h1 and refresh")],
)
def test_of_changes_of_one_price_the_one_that_changes_least_is_named(
    tag_match: str, change: str
) -> None:
    fleet = Fleet(2)
    fleet.host(1)
    fleet.host(2, tags=frozenset({"a", "b"} if tag_match == "all" else ()))
    fleet.group(WAITING, on=[], tags=frozenset("abc"), tag_match=tag_match)
    assert line(fleet) == f"{change} the hosts of g1"


def test_a_host_that_matches_by_now_needs_no_more_tags() -> None:
    fleet = Fleet(1)
    fleet.host(1, tags=frozenset("a"))
    fleet.group(WAITING, on=[], tags=frozenset("ab"), tag_match="any")
    assert line(fleet) == "refresh the hosts of g1"


def test_a_delayed_attempt_is_waited_for_rather_than_a_task_submitted() -> None:
    fleet = Fleet(1)
    fleet.group(WAITING, ready=0, unfinished=2, delayed_until=NOW + 30)
    assert line(fleet) == "wait 30 s: the next attempt is due then"
    fleet.work(WAITING, delayed_until=NOW + 7200)
    assert line(fleet) == "submit 1 more task to g1", "that is less than two hours"
    fleet.group(WAITING, ready=0, unfinished=2, refuses_tasks=True)
    assert line(fleet) == "reopen g1 and submit 1 more task to it"


def test_a_verb_lifts_only_the_failures_that_it_is_for() -> None:
    fleet = Fleet(1)
    failures = [
        Failure(group=WAITING, group_name="g1", kind=kind, reason="exit code 3", next_at=at)
        for kind, at in (
            (HostFailureKind.SETUP_FAILED, None),
            (HostFailureKind.NO_PROGRESS, NOW + 60),
        )
    ]
    fleet.host(1, failures=tuple(failures))
    fleet.group(WAITING)
    assert line(fleet) == (
        "repair the setup of g1 on h1 and retry it, then wait 60 s: h1 is tried again then"
    )


def test_a_task_group_that_this_decision_serves_first_is_overtaken_by_its_priority() -> None:
    fleet = Fleet(1)
    fleet.group(2, priority=-1, unfinished=5)
    fleet.lease(2, 1, affinity_until=NOW - 1)
    fleet.group(3, priority=7)
    fleet.group(WAITING, created_at=9.0)
    assert line(fleet) == "set the priority of g1 above 7"


def test_no_priority_above_the_greatest_is_named() -> None:
    fleet = Fleet(1)
    fleet.group(WAITING)
    group = fleet.snapshot.groups[WAITING]
    assert priority_above(group, MOST_PRIORITY) is None
    most = priority_above(group, MOST_PRIORITY - 1)
    assert most is not None
    assert TypeAdapter(Int32).validate_python(int(most.value)) == MOST_PRIORITY
    with pytest.raises(ValidationError):
        TypeAdapter(Int32).validate_python(MOST_PRIORITY + 1)


def test_a_host_has_the_smallest_change_of_all_task_groups() -> None:
    fleet = Fleet(1)
    fleet.host(1, capacity=Capacity(1, 4), draining=True)
    fleet.group(2, demand=Capacity(1, 8))
    fleet.group(3, demand=Capacity(1, 4))
    found = explain_host(fleet.snapshot, NOW, 1).smallest
    assert found is not None
    assert found.line == "end the drain of h1"


def test_the_prices_are_in_the_order_of_who_can_make_the_change() -> None:
    order = sorted(PRICES, key=PRICES.__getitem__)
    assert order.index(ChangeKind.PRIORITY) < order.index(ChangeKind.END_DRAIN)
    assert order.index(ChangeKind.END_DRAIN) < order.index(ChangeKind.PLAN)
    assert PRICES.keys() == set(ChangeKind)


def test_a_host_on_the_way_needs_no_more_than_one_task() -> None:
    """The host that was freed for it counts; a host more than that would need five tasks."""
    fleet = Fleet(1)
    fleet.host(1, freed_for=(Freed(WAITING, NOW - 1),))
    fleet.group(WAITING, ready=0, unfinished=2, workers=2)
    assert line(fleet) == "submit 1 more task to g1"
