from graphlib import CycleError
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.jobs.graph import find_cycle, layers
from tests.support.examples import examples

NAMES = [f"s{n}" for n in range(7)]
GRAPHS = st.dictionaries(
    st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3, unique=True), max_size=7
)


def reachable(graph: dict[str, list[str]]) -> dict[str, set[str]]:
    """What comes before each name, by repeated joining: the plain reference."""
    before = {name: {one for one in graph[name] if one in graph} for name in graph}
    for _ in graph:
        for name in graph:
            before[name] |= {far for one in before[name] for far in before[one]}
    return before


@settings(max_examples=examples(20), deadline=None)
@given(GRAPHS)
def test_a_cycle_is_found_where_a_name_comes_before_itself(graph: dict[str, list[str]]) -> None:
    before = reachable(graph)
    cycle = find_cycle(graph)
    assert (cycle is not None) == any(name in before[name] for name in graph)
    if cycle is not None:
        assert cycle[0] == cycle[-1] == min(cycle)
        assert len(set(cycle)) == len(cycle) - 1
        assert all(one in graph[two] for one, two in pairwise(cycle))


@settings(max_examples=examples(20), deadline=None)
@given(GRAPHS)
def test_each_name_is_in_the_first_layer_after_those_before_it(graph: dict[str, list[str]]) -> None:
    before = reachable(graph)
    if any(name in before[name] for name in graph):
        with pytest.raises(CycleError):
            layers(graph)
        return
    at = {name: number for number, layer in enumerate(layers(graph)) for name in layer}
    assert at.keys() == graph.keys()
    for name, earlier in graph.items():
        direct = [at[one] for one in earlier if one in graph]
        assert at[name] == max(direct, default=-1) + 1


def test_a_long_chain_needs_no_deep_stack() -> None:
    chain = {f"s{n}": [f"s{n - 1}"] for n in range(5_000)}
    assert find_cycle(chain) is None
    assert len(layers(chain)) == 5_000
