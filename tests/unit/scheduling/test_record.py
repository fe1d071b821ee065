"""A decision that is made again on recorded facts is the same decision."""

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy
from mitosis.scheduling.record import recorded, restored
from tests.support.scheduling import NOW, Fleet


def test_a_record_has_at_most_25_bytes_for_each_host() -> None:
    fleet = Fleet(2_000)
    for number in range(40):
        binding = CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)
        fleet.group(number, ready=100, binding=binding, tags=frozenset({f"t{number}"}))
    data = recorded(fleet.snapshot, NOW)
    assert len(data) < 25 * 2_000
    assert len(restored(data)[0].hosts) == 2_000
