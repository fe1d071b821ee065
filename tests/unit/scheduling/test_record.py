"""A decision that is made again on recorded facts is the same decision."""

from hypothesis import given

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy
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


def test_a_record_has_at_most_25_bytes_for_each_host() -> None:
    fleet = Fleet(2_000)
    for number in range(40):
        binding = CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)
        fleet.group(number, ready=100, binding=binding, tags=frozenset({f"t{number}"}))
    data = recorded(fleet.snapshot, NOW)
    assert len(data) < 25 * 2_000
    assert len(restored(data)[0].hosts) == 2_000
