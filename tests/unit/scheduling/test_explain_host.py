"""What a host does, and what keeps it from the task groups that wait."""

from collections.abc import Callable

import pytest

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.explain_host import GROUPS_SHOWN, explain_host
from mitosis.scheduling.facts import Progress
from tests.support.scheduling import HOUR, NOW, Fleet


def lines(fleet: Fleet) -> list[str]:
    return list(explain_host(fleet.snapshot, NOW, 1).lines)


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "is free"),
        ({"draining": True}, "is draining and has nothing left to do"),
        ({"unclean": frozenset({9})}, "cleans up"),
        ({"in_contact": False, "last_contact_at": NOW - 60}, "was last seen 60 s ago"),
        ({"in_contact": False, "last_contact_at": None}, "has never been in contact"),
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
