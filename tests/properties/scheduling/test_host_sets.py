"""Sets of hosts as integers."""

from hypothesis import given
from hypothesis import strategies as st

from mitosis.scheduling.host_sets import lowest, ordinals, set_of


@given(st.lists(st.integers(0, 300), min_size=1))
def test_a_set_has_exactly_the_ordinals_it_was_made_of(given_: list[int]) -> None:
    made = set_of(given_)
    assert made == sum(1 << ordinal for ordinal in set(given_))
    assert list(ordinals(made)) == sorted(set(given_))
    assert lowest(made) == min(given_)
