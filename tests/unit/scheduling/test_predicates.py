"""The list of conditions: each can be what is in the way, and the decision combines exactly them."""

from typing import Any

import pytest

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.facts import Capacity, Failure, Progress
from mitosis.scheduling.moment import Moment
from mitosis.scheduling.predicates import BY_CODE, PREDICATES, obstacles, setup_failed_everywhere
from tests.support.scheduling import NOW, OTHERS, USERS, Fleet

EXCLUSIVE = CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)
TAGS: dict[str, Any] = {"tags": frozenset({"gpu", "x86"}), "on": []}
HOUR_LATER = NOW + 3600


def failed(kind: HostFailureKind, group: int = 1, next_at: float | None = HOUR_LATER) -> Failure:
    return Failure(
        group=group, group_name=f"g{group}", kind=kind, reason="exit code 3", next_at=next_at
    )


def found(fleet: Fleet, now: float = NOW) -> list[str]:
    moment = Moment(fleet.snapshot, now)
    group, host = fleet.snapshot.groups[1], fleet.snapshot.hosts[1]
    return [predicate.code for predicate in obstacles(moment, group, host)]


def sentence(fleet: Fleet, code: str) -> str:
    moment = Moment(fleet.snapshot, NOW)
    return BY_CODE[code].sentence(moment, fleet.snapshot.groups[1], fleet.snapshot.hosts[1])


CASES: list[tuple[dict[str, Any], dict[str, Any], list[str], str]] = [
    ({}, {"goes_on": False}, ["ended"], "the task group has ended"),
    ({}, {"ready": 0}, ["no_work", "enough"], "no task is ready"),
    (
        {},
        {"ready": 0, "delayed_until": NOW + 60},
        ["no_work", "enough"],
        "at least 1 is needed; the next attempt is due in 60 s",
    ),
    ({}, {"max_managers": 0}, ["max_managers"], "the task group has 0 of at most 0 hosts"),
    ({"serves": frozenset({OTHERS})}, {}, ["no_role"], "no write role in user group users"),
    (
        {"tags": frozenset({"x86", "arm"})},
        TAGS,
        ["tags"],
        "lacks gpu; the task group needs all of gpu, x86",
    ),
    (
        {"tags": frozenset({"arm"})},
        {**TAGS, "tag_match": "any"},
        ["tags"],
        "lacks gpu, x86; the task group needs any of gpu, x86",
    ),
    (
        {"tags": frozenset({"gpu", "x86"})},
        TAGS,
        ["tags"],
        "mitosis group managers g1 --refresh",
    ),
    ({}, {"on": [], "assignment_method": "user_specified"}, ["not_named"], "is not named"),
    (
        {},
        {"on": [], "removed": 1},
        ["removed"],
        "removed from the task group; to add it: mitosis",
    ),
    (
        {"cores": (0, 1)},
        {"binding": EXCLUSIVE, "workers": 3},
        ["misfit"],
        "cannot serve it: 3 exclusive workers need 3 cores, but 2 are listed: [0, 1]",
    ),
    ({"cores": (0, 1, 2)}, {"binding": EXCLUSIVE, "workers": 3}, [], ""),
    ({"cores": None, "in_contact": False}, {"binding": EXCLUSIVE}, ["no_contact"], "was last seen"),
    (
        {"capacity": Capacity(1, 8, 100)},
        {"demand": Capacity(1, 9, 200)},
        ["too_small", "busy"],
        "is too small: it has 8 of 9 cores, 100 of 200 memory bytes",
    ),
    (
        {"in_contact": False, "last_contact_at": NOW - 15},
        {},
        ["no_contact"],
        "was last seen 15 s ago; silence of 10 s is allowed",
    ),
    ({"in_contact": False, "last_contact_at": None}, {}, ["no_contact"], "never been in contact"),
    ({"draining": True}, {}, ["draining"], "is draining"),
    ({"unclean": frozenset({1})}, {}, ["cleanup", "unclean"], "cleans up after this task group"),
    ({"unclean": frozenset({9})}, {}, ["unclean"], "cleans up after another task group"),
    (
        {"unclean": frozenset({9}), "debt": "no process can be made"},
        {},
        ["unclean"],
        "cleans up after another task group: no process can be made",
    ),
    *(
        ({"failures": (failed(kind),)}, {}, [kind.value], failed(kind).at(NOW).sentence("h1"))
        for kind in HostFailureKind
        if kind is not HostFailureKind.TASKS_FAILED
    ),
    ({"failures": (failed(HostFailureKind.TASKS_FAILED),)}, {}, [], ""),
    ({"failures": (failed(HostFailureKind.SETUP_FAILED, group=2),)}, {}, [], ""),
    ({"failures": (failed(HostFailureKind.UNREACHABLE, group=2),)}, {}, ["unreachable"], "h1"),
]


@pytest.mark.parametrize(("of_host", "of_group", "codes", "text"), CASES)
def test_each_condition_can_be_in_the_way(
    of_host: dict[str, Any], of_group: dict[str, Any], codes: list[str], text: str
) -> None:
    fleet = Fleet()
    fleet.host(1, **of_host)
    fleet.group(1, **of_group)
    assert found(fleet) == codes
    assert fleet.offers() == ([] if codes else [(1, 1)])
    if codes and text != "h1":
        assert text in sentence(fleet, codes[0])


def test_a_lease_of_another_group_is_named_and_its_own_leases_are_counted() -> None:
    fleet = Fleet(2)
    fleet.group(1, ready=4, workers=2)
    fleet.group(2, priority=5)
    fleet.lease(2, 1)
    assert found(fleet) == ["busy"]
    assert sentence(fleet, "busy") == (
        "is busy with another task group of higher priority: g2 (priority 5); this one has priority 0"
    )
    fleet.lease(1, 2, progress=Progress.STARTING)
    assert found(fleet) == ["enough", "busy"]
    assert sentence(fleet, "enough") == (
        "is not needed: the task group has 1 of the 1 hosts that it can use;"
        " 4 tasks are ready, and a host is used for each 4, 2 for each of its 2 workers"
    )


@pytest.mark.parametrize("kind", [*HostFailureKind])
def test_a_pause_after_a_failure_ends_by_the_clock_alone(kind: HostFailureKind) -> None:
    fleet = Fleet()
    fleet.host(1, failures=(failed(kind),))
    fleet.group(1)
    lasts = kind in (HostFailureKind.SETUP_FAILED, HostFailureKind.SUSPECTED)
    assert fleet.offers(HOUR_LATER) == ([] if lasts else [(1, 1)])
    assert found(fleet, HOUR_LATER) == ([kind.value] if lasts else [])
    assert failed(kind).at(HOUR_LATER).blocks == lasts
    assert failed(kind).at(NOW).blocks == (kind is not HostFailureKind.TASKS_FAILED)


def test_a_host_stays_unreachable_while_one_of_its_pauses_lasts() -> None:
    fleet = Fleet()
    kind = HostFailureKind.UNREACHABLE
    fleet.host(1, failures=(failed(kind, 1, NOW - 1), failed(kind, 2)))
    fleet.group(1)
    assert found(fleet) == ["unreachable"]


def test_a_group_whose_setup_failed_on_every_host_that_may_serve_it_is_found() -> None:
    fleet = Fleet(4)
    fleet.host(3, serves=frozenset({OTHERS}))
    fleet.group(1, on=[1, 2, 3])
    group = fleet.snapshot.groups[1]
    setup = failed(HostFailureKind.SETUP_FAILED)
    assert not setup_failed_everywhere(Moment(fleet.snapshot, NOW), group)
    fleet.host(1, failures=(setup,))
    assert not setup_failed_everywhere(Moment(fleet.snapshot, NOW), group)
    fleet.host(2, failures=(setup,), in_contact=False)
    both = fleet.snapshot.host_set([1, 2])
    assert setup_failed_everywhere(Moment(fleet.snapshot, NOW), group) == both
    fleet.group(1, on=[])
    assert not setup_failed_everywhere(Moment(fleet.snapshot, NOW), fleet.snapshot.groups[1])


def test_codes_are_distinct_and_in_the_order_of_repair() -> None:
    codes = [predicate.code for predicate in PREDICATES]
    assert len(set(codes)) == len(codes)
    assert codes.index("draining") < codes.index("busy") < codes.index("unclean")
    assert USERS != OTHERS
