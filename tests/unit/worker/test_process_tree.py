"""Which processes are below which: a pure question over a snapshot, and the walk on real ones."""

from hypothesis import given
from hypothesis import strategies as st

from mitosis.worker.process_tree import below


def test_descendants_of_descendants_are_below() -> None:
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 99}
    assert below(2, parents) == {3, 4}
    assert below(1, parents) == {2, 3, 4, 5}


def test_a_spared_process_spares_all_below_it() -> None:
    parents = {2: 1, 3: 2, 4: 3, 5: 1}
    assert below(1, parents, spare={2}) == {5}


@given(st.dictionaries(st.integers(1, 30), st.integers(1, 30)))
def test_the_walk_ends_whatever_the_snapshot_says(parents: dict[int, int]) -> None:
    found = below(1, parents)
    assert all(parents[pid] in found | {1} for pid in found)
