"""A situation differs wherever the explanation does, and time alone makes no other one."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.explain import explain_group
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
