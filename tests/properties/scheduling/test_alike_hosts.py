"""Of hosts that are alike some are enough: no other one costs less."""

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.scheduling.alike_hosts import first_of_each_kind
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.predicates import conditions_for
from mitosis.scheduling.smallest_change import needed_changes
from mitosis.scheduling.states import HostState
from tests.support.examples import examples
from tests.support.random_fleets import contested_fleets, exclusive_fleets, fleets
from tests.support.scheduling import NOW, Fleet

FLEETS = st.one_of(fleets(), contested_fleets(), exclusive_fleets(st.just(Policy())))


def prices(
    fleet: Fleet, group: int, most: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The least prices over all hosts, and over those that were chosen."""
    round_, state = decided_round(fleet.snapshot, NOW), fleet.snapshot.groups[group]
    conditions = conditions_for(round_.moment, state)

    def least(hosts: Iterable[HostState]) -> list[tuple[float, float]]:
        found = (needed_changes(round_, state, host, conditions) for host in hosts)
        return sorted(one.price for one in found if one is not None)[:most]

    chosen = first_of_each_kind(round_, conditions, most)
    return least(fleet.snapshot.hosts.values()), least(chosen)


@given(FLEETS, st.integers(1, 2))
@settings(max_examples=examples(25))
def test_the_cheapest_changes_are_among_those_of_the_chosen_hosts(fleet: Fleet, most: int) -> None:
    for group in fleet.snapshot.groups:
        of_all, of_chosen = prices(fleet, group, most)
        assert of_chosen == of_all
