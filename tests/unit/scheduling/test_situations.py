"""A situation differs wherever the explanation does, and time alone makes no other one."""

from dataclasses import replace

import pytest

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.facts import Progress
from mitosis.scheduling.situations import Situation, situation
from tests.support.scheduling import NOW, Fleet

WAITING = 1


def of(fleet: Fleet, group: int = WAITING, now: float = NOW) -> Situation:
    return situation(decided_round(fleet.snapshot, now), fleet.snapshot.groups[group])


@pytest.mark.parametrize(
    ("state", "progress", "first"),
    [
        (LeaseState.OFFERED, Progress.STARTING, "begins"),
        (LeaseState.ACTIVE, Progress.STARTING, "begins"),
        (LeaseState.ACTIVE, Progress.ROOM, "works"),
        (LeaseState.ACTIVE, Progress.FULL, "works"),
        (LeaseState.ENDING, Progress.FULL, "waits"),
    ],
)
def test_a_lease_makes_another_situation(state: LeaseState, progress: Progress, first: str) -> None:
    fleet = Fleet(1)
    fleet.group(WAITING)
    before = of(fleet)
    fleet.lease(WAITING, 1, state=state, progress=progress)
    assert (of(fleet)[0], before[0]) == (first, "waits")
    assert of(fleet) != before
    fleet.work(WAITING, ready=0, unfinished=0)
    assert of(fleet) == ("idle",)


def test_another_holder_or_another_priority_of_it_makes_another_situation() -> None:
    fleet = Fleet(1)
    for number in (WAITING, 2, 3):
        fleet.group(number)
    lease = fleet.lease(2, 1)
    found = [of(fleet)]
    fleet.change_group(2, priority=7)
    found.append(of(fleet))
    fleet.snapshot.drop_lease(lease)
    found.append(of(fleet))
    fleet.lease(3, 1)
    found.append(of(fleet))
    assert len(set(found)) == len(found)


def test_time_and_tasks_alone_make_none() -> None:
    fleet = Fleet(2)
    fleet.group(WAITING, on=[])
    fleet.group(2)
    fleet.lease(2, 1)
    before = of(fleet)
    assert of(fleet, now=NOW + 60) == before
    fleet.work(WAITING, ready=9, unfinished=90)
    host = fleet.snapshot.hosts[1].fact
    fleet.snapshot.put_host(replace(host, last_contact_at=NOW))
    assert of(fleet) == before
