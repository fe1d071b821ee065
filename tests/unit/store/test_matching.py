"""Which manager serves which group: pure rules."""

from typing import Any

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.store.leases.matching import HungryGroup, IdleManager, Offer, match, may_serve, wanted


def manager(number: int = 1, **facts: Any) -> IdleManager:
    values: dict[str, Any] = {
        "tags": frozenset(),
        "cores": (0, 1),
        "serves": frozenset({1}),
        "warm": frozenset(),
        "failed": frozenset(),
    }
    return IdleManager(number=number, **{**values, **facts})


def group(number: int = 1, *, workers: int = 1, **facts: Any) -> HungryGroup:
    values: dict[str, Any] = {
        "user_group": 1,
        "tags": frozenset(),
        "tag_match": "all",
        "named": None,
        "max_managers": None,
        "plan": WorkerAllocationPlan(worker_count=workers),
        "live_leases": 0,
        "ready": 1,
    }
    return HungryGroup(number=number, **{**values, **facts})


@pytest.mark.parametrize(
    ("ready", "workers", "most", "expected"),
    [
        (0, 1, None, 0),
        (1, 100, None, 1),
        (2, 1, None, 1),
        (3, 1, None, 2),
        (10, 1, None, 5),
        (10, 4, None, 2),
        (10, 1, 3, 3),
        (1000, 2, 1, 1),
    ],
)
def test_ten_tasks_do_not_prepare_a_hundred_hosts(
    ready: int, workers: int, most: int | None, expected: int
) -> None:
    assert wanted(group(ready=ready, workers=workers, max_managers=most)) == expected


@pytest.mark.spec(
    "S000-03",
    "S000-158",
    "S002-43",
    "S002-48",
    "S002-147",
    "S002-149",
    "C-01",
    "S002-47",
    "S002-108",
)
@pytest.mark.parametrize(
    ("of_manager", "of_group", "expected"),
    [
        ({}, {}, True),
        ({"serves": frozenset({2})}, {}, False),
        ({"tags": frozenset("abc")}, {"tags": frozenset("ab")}, True),
        ({"tags": frozenset("a")}, {"tags": frozenset("ab")}, False),
        ({"tags": frozenset("a")}, {"tags": frozenset("ab"), "tag_match": "any"}, True),
        ({"tags": frozenset("c")}, {"tags": frozenset("ab"), "tag_match": "any"}, False),
        ({}, {"tag_match": "any"}, True),
        ({}, {"named": frozenset({1})}, True),
        ({}, {"named": frozenset({2})}, False),
        ({}, {"named": frozenset()}, False),
        ({"failed": frozenset({1})}, {}, False),
        ({"failed": frozenset({2})}, {}, True),
    ],
)
def test_who_may_serve(
    of_manager: dict[str, Any], of_group: dict[str, Any], *, expected: bool
) -> None:
    assert may_serve(manager(**of_manager), group(**of_group)) is expected


def test_a_plan_needs_its_cores() -> None:
    plan = WorkerAllocationPlan.model_validate(
        {"worker_count": 3, "cpu_binding": {"strategy": "exclusive"}}
    )
    assert not may_serve(manager(cores=(0, 1)), group(plan=plan))
    assert may_serve(manager(cores=(0, 1, 2)), group(plan=plan))
    listed = WorkerAllocationPlan.model_validate({"cpu_binding": {"cores": [7]}})
    assert not may_serve(manager(cores=(0, 1)), group(plan=listed))


@pytest.mark.spec("S002-42", "S002-146")
def test_the_first_group_takes_what_it_wants_the_next_what_is_left() -> None:
    idle = {number: manager(number) for number in (1, 2, 3)}
    groups = [group(10, ready=4), group(20, ready=100)]
    assert match(groups, idle) == [Offer(10, 1), Offer(10, 2), Offer(20, 3)]
    assert idle == {}


def test_leases_there_are_count() -> None:
    idle = {1: manager(1)}
    assert match([group(ready=4, live_leases=2)], idle) == []
    assert match([group(ready=5, live_leases=2)], idle) == [Offer(1, 1)]


def test_warm_managers_go_first_and_those_warm_for_others_last() -> None:
    idle = {
        1: manager(1, warm=frozenset({9})),
        2: manager(2),
        3: manager(3, warm=frozenset({1})),
    }
    assert match([group(ready=6)], dict(idle)) == [Offer(1, 3), Offer(1, 2), Offer(1, 1)]
