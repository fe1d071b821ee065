"""What a host does, and what keeps it from the task groups that wait."""

from collections.abc import Callable

import pytest

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.explain_host import GROUPS_SHOWN, explain_host
from mitosis.scheduling.facts import Progress
from mitosis.scheduling.smallest_change import Changes
from tests.support.scheduling import HOUR, NOW, Fleet


def lines(fleet: Fleet) -> list[str]:
    return [one.line for one in explain_host(fleet.snapshot, NOW, 1).doing]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "is free"),
        ({"draining": True}, "is draining and has nothing left to do"),
        ({"unclean": frozenset({9})}, "cleans up"),
        (
            {"in_contact": False, "last_contact_at": NOW - 60},
            "was last seen 60 s ago; silence of 10 s is allowed",
        ),
        (
            {"in_contact": False, "last_contact_at": None},
            "has never been in contact; silence of 10 s is allowed",
        ),
    ],
)
def test_a_host_without_a_lease(facts: dict[str, object], line: str) -> None:
    fleet = Fleet()
    fleet.host(1, **facts)
    assert lines(fleet) == [line]


LEASES: list[tuple[Callable[[Fleet], object], str]] = [
    (lambda fleet: fleet.lease(1, 1, state=LeaseState.OFFERED), "is offered to g1"),
    (lambda fleet: fleet.lease(1, 1, progress=Progress.STARTING), "is being set up for g1"),
    (
        lambda fleet: fleet.lease(1, 1, affinity_until=NOW + HOUR),
        "works for g1; it stays for 60 min at least while it has work",
    ),
    (
        lambda fleet: fleet.lease(1, 1, affinity_until=NOW + HOUR, renewed=True),
        "works for g1; its lease was renewed for 60 min more, except from task groups without a host",
    ),
    (
        lambda fleet: fleet.idle(1, 1, since=60.0, affinity_until=float("inf")),
        "has been idle under g1 for 60 s",
    ),
    (lambda fleet: fleet.ending(1, 1, for_group=2), "finishes its tasks of g1, then goes to g2"),
    (lambda fleet: fleet.ending(1, 1, for_group=0), "finishes its tasks of g1"),
]


@pytest.mark.parametrize(("build", "line"), LEASES)
def test_a_host_with_a_lease(build: Callable[[Fleet], object], line: str) -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0, unfinished=1)
    fleet.group(2, ready=0)
    build(fleet)
    assert lines(fleet) == [line]


def test_waiting_groups_come_best_first_and_the_rest_is_counted() -> None:
    fleet = Fleet(1)
    fleet.host(1, draining=True)
    for number in range(1, GROUPS_SHOWN + 4):
        fleet.group(number, priority=number)
    found = explain_host(fleet.snapshot, NOW, 1)
    assert [number for number, _ in found.waiting] == list(range(23, 3, -1))
    assert found.more == 3
    codes = {chain.first_obstacle.code for _, chain in found.waiting if chain.first_obstacle}
    assert codes == {"draining"}


def change(fleet: Fleet, number: int = 1) -> str | None:
    found = explain_host(fleet.snapshot, NOW, number).smallest
    return None if found is None else found.line


def test_the_smallest_change_brings_a_group_to_this_host_and_not_to_another() -> None:
    fleet = Fleet(2)
    fleet.host(2, draining=True)
    fleet.group(1)
    # The other host is free, and would get the only task in any case.
    assert change(fleet, 2) is None
    fleet.work(1, ready=1000, unfinished=1000)
    assert change(fleet, 2) == "end the drain of h2"
    fleet.change_group(1, members=0, tags=frozenset({"gpu"}))
    assert change(fleet, 2) == "tag gpu on h2 and refresh the hosts of g1, then end the drain of h2"


def test_a_group_that_has_all_the_hosts_it_may_have_could_use_it_as_well() -> None:
    fleet = Fleet(1)
    fleet.group(1, max_managers=0)
    assert change(fleet) == "raise max_managers of g1 to 1"
    (waiting,) = explain_host(fleet.snapshot, NOW, 1).waiting
    assert waiting[1].obstacles[0].sentence.endswith("has 0 of at most 0 hosts")


def test_a_host_that_works_or_is_given_away_needs_no_change() -> None:
    fleet = Fleet(1)
    fleet.group(1)
    found = explain_host(fleet.snapshot, NOW, 1)
    assert (len(found.gets), found.is_of_use, found.smallest) == (1, True, None)
    fleet.group(2, priority=-1)
    fleet.lease(1, 1)
    found = explain_host(fleet.snapshot, NOW, 1)
    assert (found.gets, found.is_of_use, found.smallest) == ([], True, None)
    (waiting,) = found.waiting
    assert waiting[0] == 2
    assert [step.code for step in waiting[1].obstacles] == ["held_rank"]


def test_an_idle_host_is_brought_to_the_next_group_by_time() -> None:
    fleet = Fleet(1)
    fleet.group(1, ready=0, unfinished=1, teardown_seconds=300.0)
    fleet.group(2, priority=-1)
    fleet.idle(1, 1, since=60.0, affinity_until=NOW + HOUR)
    found = explain_host(fleet.snapshot, NOW, 1)
    assert not found.is_of_use
    assert isinstance(found.smallest, Changes)
    assert found.smallest.line == "wait 4 min: h1 will have been idle for long enough"


def test_groups_that_may_not_be_named_are_counted_only() -> None:
    fleet = Fleet(1)
    fleet.host(1, draining=True)
    fleet.group(1)
    fleet.group(2)
    found = explain_host(fleet.snapshot, NOW, 1, lambda group: group.number == 2)
    assert ([number for number, _ in found.waiting], found.more) == ([2], 1)
    assert found.smallest is not None
    assert found.smallest.changes[0].group == 2
