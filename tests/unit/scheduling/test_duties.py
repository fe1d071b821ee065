"""Leases that end or are renewed although no task group waits."""

import pytest

from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.actions import EndReason
from mitosis.scheduling.facts import FOREVER
from tests.support.scheduling import HOUR, NOW, OTHERS, Fleet


def test_lowering_max_managers_ends_the_excess_last_come_first() -> None:
    fleet = Fleet(4)
    fleet.group(1, ready=100)
    leases = [fleet.lease(1, n, taken_at=NOW - taken) for n, taken in ((1, 9), (2, 1), (3, 5))]
    ending = fleet.ending(1, 4, for_group=9)
    assert fleet.ends() == []
    fleet.change_group(1, max_managers=1)
    ends = fleet.ends()
    assert [end.lease for end in ends] == [leases[1], leases[2]]
    assert {end.reason for end in ends} == {EndReason.MAX_MANAGERS}
    assert {end.ask_back_at for end in ends} == {NOW}
    assert ending not in {end.lease for end in ends}
    fleet.change_group(1, max_managers=0)
    assert len(fleet.ends()) == 3


def test_a_lease_that_ends_anyway_counts_as_gone() -> None:
    fleet = Fleet(2)
    fleet.group(1, ready=100, max_managers=1)
    fleet.lease(1, 1, taken_at=NOW - 9)
    fleet.lease(1, 2, taken_at=NOW - 1)
    fleet.host(1, draining=True)
    assert [(end.host, end.reason) for end in fleet.ends()] == [(1, EndReason.DRAINING)]


def test_leases_on_a_draining_host_end_and_it_finishes_its_tasks() -> None:
    fleet = Fleet(2)
    fleet.group(1, ready=100)
    offered = fleet.lease(1, 1, state=LeaseState.OFFERED)
    active = fleet.lease(1, 2)
    for number in (1, 2):
        fleet.host(number, draining=True)
    assert [(end.lease, end.reason, end.asks_back) for end in fleet.ends()] == [
        (offered, EndReason.DRAINING, False),
        (active, EndReason.DRAINING, False),
    ]
    assert {end.ask_back_at for end in fleet.ends()} == {FOREVER}


def test_a_host_that_left_the_group_or_lost_its_role_gives_back_the_rest() -> None:
    fleet = Fleet(2)
    fleet.group(1, ready=100)
    leases = [fleet.lease(1, n) for n in (1, 2)]
    fleet.change_group(1, members=fleet.snapshot.host_set([2]))
    fleet.host(2, serves=frozenset({OTHERS}))
    ends = fleet.ends()
    assert [(end.lease, end.reason, end.ask_back_at) for end in ends] == [
        (leases[0], EndReason.NOT_MEMBER, NOW),
        (leases[1], EndReason.NOT_MEMBER, NOW),
    ]
    assert fleet.offers() == []


def test_at_the_end_of_its_affinity_a_lease_is_renewed_while_the_group_has_unfinished_tasks() -> (
    None
):
    fleet = Fleet(1)
    fleet.group(1, ready=0, unfinished=1)
    lease = fleet.idle(1, 1, since=10.0, affinity_until=NOW)
    assert [(r.lease, r.until) for r in fleet.renewals()] == [(lease, NOW + HOUR)]
    assert fleet.renewals(NOW - 1) == []
    fleet.work(1, unfinished=0)
    assert fleet.renewals() == []
    (end,) = fleet.ends()
    assert (end.lease, end.reason, end.for_group) == (lease, EndReason.NO_WORK, None)


@pytest.mark.parametrize(
    ("setup", "teardown", "task", "workers", "hours"),
    [
        (0.0, 0.0, 0.0, 1, 1.0),
        (300.0, 60.0, 0.0, 8, 2.0),
        (300.0, 60.0, 1e6, 1, 2.0),
        (60.0, 60.0, 115.4, 8, 2.0),
        (9000.0, 0.0, 0.0, 1, 4.0),
    ],
)
def test_affinity_is_twenty_times_the_cost_of_a_move_within_one_to_four_hours(
    setup: float, teardown: float, task: float, workers: int, hours: float
) -> None:
    fleet = Fleet(1)
    fleet.group(
        1, workers=workers, setup_seconds=setup, teardown_seconds=teardown, task_seconds=task
    )
    fleet.lease(1, 1, affinity_until=NOW)
    (renewal,) = fleet.renewals()
    assert renewal.until - NOW == pytest.approx(hours * HOUR, rel=1e-3)


def test_a_group_can_set_its_own_affinity() -> None:
    own = LeaseTerms(lease_duration=60.0, longest_lease=60.0)
    fleet = Fleet(2)
    fleet.group(1, ready=9, leases=own)
    fleet.lease(1, 1, affinity_until=NOW)
    assert [renewal.until for renewal in fleet.renewals()] == [NOW + 60]
