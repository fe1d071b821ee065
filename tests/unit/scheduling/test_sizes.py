"""How many leases a task group can use (protocol P9, last item)."""

import pytest

from mitosis.scheduling.facts import Progress, Work
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.sizes import Held, missing_leases, useful_leases
from tests.support.scheduling import Fleet

POLICY = Policy()


@pytest.mark.parametrize(
    ("ready", "workers", "full", "expected"),
    [
        (0, 1, 0, 0),
        (0, 1, 3, 0),
        (1, 100, 0, 1),
        (2, 1, 0, 1),
        (3, 1, 0, 2),
        (10, 4, 0, 2),
        (10, 4, 3, 5),
    ],
)
def test_before_five_tasks_ended_two_ready_tasks_per_worker_are_a_lease(
    ready: int, workers: int, full: int, expected: int
) -> None:
    measured = Work(ready=ready, tasks_measured=4, task_seconds=0.001)
    assert useful_leases(measured, workers, full, POLICY) == expected


@pytest.mark.parametrize(
    ("ready", "task", "workers", "setup", "teardown", "expected"),
    [
        (2000, 1.0, 8, 300.0, 0.0, 1),
        (2000, 1.0, 8, 100.0, 25.0, 2),
        (2000, 1.0, 8, 10.0, 5.0, 4),
        (2000, 1.0, 8, 0.0, 0.0, 4),
        (3, 0.1, 1, 0.0, 0.0, 1),
        (20, 14_400.0, 8, 120.0, 0.0, 2),
    ],
)
def test_afterwards_the_ready_work_must_pay_for_setup_and_teardown(
    ready: int, task: float, workers: int, setup: float, teardown: float, expected: int
) -> None:
    work = Work(
        ready=ready,
        tasks_measured=5,
        task_seconds=task,
        setup_seconds=setup,
        teardown_seconds=teardown,
    )
    assert useful_leases(work, workers, 0, POLICY) == expected


@pytest.mark.parametrize(
    ("held", "most", "expected"),
    [
        (Held(), None, 3),
        (Held(live=1, full=1), None, 3),
        (Held(live=1, coming=1), None, 2),
        (Held(live=1), None, 3),
        (Held(promised=1), None, 2),
        (Held(ending=2), None, 3),
        (Held(ending=2), 3, 1),
        (Held(live=1), 3, 2),
        (Held(live=1, full=1, promised=1), 3, 1),
        (Held(live=5, coming=5), None, -2),
    ],
)
def test_leases_that_work_are_full_and_those_that_come_count(
    held: Held, most: int | None, expected: int
) -> None:
    assert missing_leases(Work(ready=6), 1, most, held, POLICY) == expected


def test_a_lease_counts_by_its_progress() -> None:
    held = Held()
    for progress in Progress:
        held.count(progress, 1)
    assert (held.live, held.coming, held.full, held.has_host) == (4, 2, 1, True)
    held.count(Progress.FULL, -1)
    assert (held.live, held.full) == (3, 0)


def test_long_tasks_get_a_host_each_though_every_lease_works() -> None:
    """40 tasks of 4 hours, 8 on a host: the first host works, 32 tasks wait beside 10 free hosts."""
    fleet = Fleet(11)
    fleet.group(
        1, ready=32, workers=8, tasks_measured=8, task_seconds=14_400.0, setup_seconds=300.0
    )
    fleet.lease(1, 11)
    assert len(fleet.offers()) == 2
    for number in (1, 2):
        fleet.lease(1, number)
    fleet.work(1, ready=16)
    assert len(fleet.offers()) == 1


def test_many_short_tasks_keep_one_host_of_a_hundred() -> None:
    """2,000 tasks of a second, setup 5 minutes: 4 worker-minutes do not pay for a second setup."""
    fleet = Fleet(100)
    fleet.group(1, ready=1_950, workers=8, tasks_measured=50, task_seconds=1.0, setup_seconds=300.0)
    fleet.lease(1, 100)
    assert fleet.offers() == []
