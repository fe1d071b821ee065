"""Which leases are in excess: of each group the last ones beyond its limit."""

from hypothesis import given
from hypothesis import strategies as st

from mitosis.store.leases.excess import CountedLease, excess_leases

LEASES = st.lists(
    st.tuples(st.integers(1, 100), st.integers(1, 3)), unique_by=lambda pair: pair[0], max_size=12
)
LIMITS = st.fixed_dictionaries({group: st.integers(1, 4) for group in (1, 2, 3)})


@given(LEASES, LIMITS)
def test_the_first_ones_up_to_the_limit_stay(
    leases: list[tuple[int, int]], limits: dict[int, int]
) -> None:
    counted = [CountedLease(epoch, group, limits[group]) for epoch, group in leases]
    ended = set(excess_leases(counted))
    for group, most in limits.items():
        epochs = sorted(epoch for epoch, of in leases if of == group)
        assert [epoch for epoch in epochs if epoch not in ended] == epochs[:most]
