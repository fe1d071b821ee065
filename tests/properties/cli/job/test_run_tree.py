"""The tree of a run: each step once, below the last step before it, with what is known about it."""

import re

from hypothesis import given
from hypothesis import strategies as st

from mitosis.cli.job.run_tree import MARKS, Rates, tree_lines
from mitosis.contracts.lifecycle import StepState
from mitosis.contracts.runs import StepInfo
from tests.support.run_views import NOON, run_view, step


@given(st.data())
def test_every_step_stands_once_below_a_step_before_it(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    steps: list[StepInfo] = []
    for at in range(count):
        below = data.draw(st.lists(st.sampled_from(range(at)), unique=True)) if at else []
        layer = 1 + max((steps[one].layer for one in below), default=-1)
        state = data.draw(st.sampled_from(list(StepState)))
        steps.append(step(f"s{at}", state, after=[f"s{one}" for one in below], layer=layer))
    steps.sort(key=lambda one: one.layer)
    lines = tree_lines(run_view(*steps), Rates(), NOON)
    marks = "|".join(map(re.escape, MARKS.values()))
    found = [re.fullmatch(rf"(.*?)({marks}) (s\d+).*", line) for line in lines]
    placed = [(len(one[1]) // 3, one[3]) for one in found if one]
    assert sorted(name for _, name in placed) == sorted(one.name for one in steps)
    known = {one.name: one for one in steps}
    above: dict[int, str] = {}
    for depth, name in placed:
        above[depth] = name
        before = known[name].after
        assert bool(before) == bool(depth)
        if before:
            parent = above[depth - 1]
            assert parent in before
            assert known[parent].layer == max(known[one].layer for one in before)
