"""Which processes are below which: a pure question over a snapshot, and the walk on real ones."""

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from mitosis.worker.process_tree import below, kill_below, process_parents


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


def test_a_real_tree_is_killed_to_the_last() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 60 & setsid sleep 60 & wait"], stdout=subprocess.PIPE
    )
    parents: dict[int, int] = {}
    while len(below(shell.pid, parents)) < 2:
        parents = process_parents()
    tree = kill_below(shell.pid, root_too=True)
    shell.communicate(timeout=10)  # the pipe is closed by the last of them
    assert tree >= {shell.pid} | below(shell.pid, parents)
    assert shell.returncode == -9
