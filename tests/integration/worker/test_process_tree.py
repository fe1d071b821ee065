"""A tree of real processes is killed to the last."""

import subprocess

from mitosis.worker.process_tree import below, kill_below, process_parents


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
