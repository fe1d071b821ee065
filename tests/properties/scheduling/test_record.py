"""A decision that is made again on recorded facts is the same decision."""

from hypothesis import given

from mitosis.scheduling.decide import decide
from mitosis.scheduling.record import recorded, restored
from tests.support.random_fleets import fleets
from tests.support.scheduling import NOW, Fleet


@given(fleet=fleets())
def test_what_was_recorded_leads_to_the_same_decision(fleet: Fleet) -> None:
    snapshot, now = restored(recorded(fleet.snapshot, NOW))
    assert now == NOW
    assert decide(snapshot, now) == decide(fleet.snapshot, NOW)
    for number, state in fleet.snapshot.groups.items():
        again = snapshot.groups[number]
        assert (again.fact, again.work) == (state.fact, state.work)
