"""May this host serve this group? One list of conditions; each can be what is in the way."""

from typing import Any

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.store.leases.eligibility import CONDITIONS, obstacles
from mitosis.store.leases.reasons import NONE_LEFT
from tests.support.host_facts import GROUP, OTHER_GROUP, failure, group, host, lease

CROWDED = WorkerAllocationPlan.model_validate(
    {"worker_count": 3, "cpu_binding": {"strategy": "exclusive"}}
)
LISTED = WorkerAllocationPlan.model_validate({"cpu_binding": {"cores": [7]}})


def codes(of_host: dict[str, Any], of_group: dict[str, Any]) -> list[str]:
    return [condition.code for condition in obstacles(host(**of_host), group(**of_group))]


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
    ("of_host", "of_group", "expected"),
    [
        ({}, {}, []),
        ({"serves": frozenset({2})}, {}, ["no_role"]),
        ({"tags": frozenset("abc")}, {"tags": frozenset("ab")}, []),
        ({"tags": frozenset("a")}, {"tags": frozenset("ab")}, ["member"]),
        ({"tags": frozenset("a")}, {"tags": frozenset("ab"), "tag_match": "any"}, []),
        ({"tags": frozenset("c")}, {"tags": frozenset("ab"), "tag_match": "any"}, ["member"]),
        ({}, {"tag_match": "any"}, []),
        ({}, {"assignment_method": "user_specified", "added": frozenset({1})}, []),
        ({}, {"assignment_method": "user_specified", "added": frozenset({2})}, ["member"]),
        ({}, {"assignment_method": "user_specified"}, ["member"]),
        ({}, {"added": frozenset({2})}, []),
        ({"failures": (failure(),)}, {}, ["setup_failed"]),
        ({"failures": (failure(group_number=OTHER_GROUP),)}, {}, []),
        *(
            ({"failures": (failure(kind, tried_in_seconds=1.0),)}, {}, [kind.value])
            for kind in HostFailureKind
            if kind is not HostFailureKind.TASKS_FAILED
        ),
        *(
            ({"failures": (failure(kind, tried_in_seconds=0.0),)}, {}, [])
            for kind in HostFailureKind
            if kind not in (HostFailureKind.SETUP_FAILED, HostFailureKind.SUSPECTED)
        ),
        (
            {
                "failures": (
                    failure(HostFailureKind.UNREACHABLE, OTHER_GROUP, tried_in_seconds=1.0),
                )
            },
            {},
            ["unreachable"],
        ),
        ({}, {"plan": CROWDED}, ["misfit"]),
        ({"cores": (0, 1, 2)}, {"plan": CROWDED}, []),
        ({"cores": ()}, {"plan": CROWDED}, ["misfit"]),
        ({"cores": None, "offline": True}, {"plan": CROWDED}, ["no_contact"]),
        ({}, {"plan": LISTED}, ["misfit"]),
        ({"silent_seconds": 9.9}, {}, []),
        ({"silent_seconds": 10.0}, {}, ["no_contact"]),
        ({"silent_seconds": 10.0, "suspect_after_seconds": 20.0}, {}, []),
        ({"silent_seconds": None}, {}, ["no_contact"]),
        ({"offline": True}, {}, ["no_contact"]),
        ({"draining": True}, {}, ["draining"]),
        ({"lease": lease("offered", OTHER_GROUP)}, {}, ["busy"]),
        ({"unclean": frozenset({OTHER_GROUP})}, {}, ["unclean"]),
        ({"unclean": frozenset({GROUP})}, {}, ["cleanup", "unclean"]),
        ({}, {"goes_on": False}, ["ended"]),
        ({}, {"ready": 0}, ["no_work", "enough"]),
        ({}, {"live_leases": 1}, ["enough"]),
        ({}, {"live_leases": 1, "ready": 3}, []),
        ({}, {"live_leases": 1, "ready": 3, "max_managers": 1}, ["enough"]),
    ],
)
def test_what_is_in_the_way(
    of_host: dict[str, Any], of_group: dict[str, Any], expected: list[str]
) -> None:
    assert codes(of_host, of_group) == expected


def test_obstacles_come_in_the_order_of_the_list() -> None:
    everything = codes(
        {
            "draining": True,
            "offline": True,
            "tags": frozenset(),
            "serves": frozenset(),
            "failures": tuple(failure(kind, tried_in_seconds=1.0) for kind in HostFailureKind),
            "lease": lease("active", OTHER_GROUP),
            "unclean": frozenset({GROUP}),
        },
        {
            "goes_on": False,
            "ready": 0,
            "tags": frozenset("x"),
            "plan": CROWDED,
            "assignment_method": "user_specified",
        },
    )
    assert everything == [condition.code for condition in CONDITIONS]


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.code)
def test_each_condition_reads_one_kind_of_facts_and_can_be_the_reason_of_a_group(
    condition: Any,
) -> None:
    predicates = (condition.of_group, condition.of_host, condition.of_pair)
    assert sum(predicate is not None for predicate in predicates) == 1
    assert condition.code in NONE_LEFT
    assert not condition.prefiltered or condition.of_pair is None


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
    assert group(ready=ready, workers=workers, max_managers=most).wanted_leases == expected
