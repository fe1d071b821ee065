"""A situation differs wherever the explanation does, and time alone makes no other one."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.explain import explain_group
from mitosis.scheduling.facts import Progress
from mitosis.scheduling.situations import Situation, situation
from tests.support.examples import examples
from tests.support.random_fleets import USABLE_HOST, fleets
from tests.support.scheduling import NOW, Fleet

WAITING = 1
CHANGED = st.sampled_from(sorted(USABLE_HOST)).flatmap(
    lambda name: st.fixed_dictionaries({name: USABLE_HOST[name]})
)


def of(fleet: Fleet, group: int = WAITING, now: float = NOW) -> Situation:
    return situation(decided_round(fleet.snapshot, now), fleet.snapshot.groups[group])


def obstacles(fleet: Fleet, group: int = WAITING) -> list[tuple[int, list[str]]]:
    """What an explanation names, apart from the rank: who goes first is not compared."""
    chains = explain_group(fleet.snapshot, NOW, group, changes=False).chains
    return [
        (chain.host, [one.code for one in chain.steps if not one.holds and one.code not in RANKS])
        for chain in chains
    ]


RANKS = {
    *("rank", "next_round", "enough", "max_managers"),
    *("held_ending", "held_rank", "held_idle", "held_affinity", "held_moves"),
}
"""Of what a decision gives to others, and of what time ends."""


@given(fleets(), st.integers(0, 4), CHANGED)
@settings(max_examples=examples(30))
def test_it_differs_where_the_obstacles_of_hosts_do(
    fleet: Fleet, which: int, facts: dict[str, Any]
) -> None:
    before, explained = of(fleet), obstacles(fleet)
    hosts = sorted(fleet.snapshot.hosts)
    number = hosts[which % len(hosts)]
    if fleet.snapshot.hosts[number].leases:
        facts.pop("capacity", None)
    fleet.host(number, **facts)
    after = of(fleet)
    if before[0] == after[0] == "waits" and obstacles(fleet) != explained:
        assert before != after


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
