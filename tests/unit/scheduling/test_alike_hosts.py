"""Of hosts that are alike some are enough: no other one costs less."""

import pytest

from mitosis.scheduling.alike_hosts import first_of_each_kind
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.predicates import conditions_for
from tests.support.scheduling import NOW, Fleet


@pytest.mark.parametrize("leased", [False, True])
def test_many_hosts_that_are_alike_cost_no_more_than_some(leased: bool) -> None:
    fleet = Fleet(50)
    fleet.group(1, on=None if leased else [])
    fleet.group(2, ready=9)
    for number in range(1, 51):
        if leased:
            fleet.lease(2, number, affinity_until=NOW + 100.0 - number)
    fleet.host(9, tags=frozenset({"gpu"}))
    round_ = decided_round(fleet.snapshot, NOW)
    conditions = conditions_for(round_.moment, fleet.snapshot.groups[1])
    chosen = [host.fact.number for host in first_of_each_kind(round_, conditions, 3)]
    assert chosen == ([9, 48, 49, 50] if leased else [1, 2, 3, 9])
