"""Graphs of names: cycles, layers and ancestors, iteratively, so that a long chain needs no deep stack.

A graph maps each name to the names that come before it; names that it does not have are ignored.
Standard library only.
"""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

Graph: TypeAlias = Mapping[str, Iterable[str]]


def find_cycle(graph: Graph) -> list[str] | None:
    """Return the names of one cycle, the first again at its end; each comes before the next one.

    None if there is no cycle. The cycle begins with the least of its names.
    """
    try:
        TopologicalSorter(_known(graph)).prepare()
    except CycleError as error:
        return _from_the_least(list(error.args[1]))
    return None


def layers(graph: Graph) -> list[list[str]]:
    """Return the names in layers: each name is in the first layer after all that come before it.

    Names of one layer are sorted. Raises ``graphlib.CycleError`` for a cycle.
    """
    sorter = TopologicalSorter(_known(graph))
    sorter.prepare()
    found: list[list[str]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found.append(ready)
        sorter.done(*ready)
    return found


def ancestors(graph: Graph, name: str) -> set[str]:
    """Return all names that come before this one, directly or not; in a cycle also the name itself."""
    found: set[str] = set()
    waiting = list(graph.get(name, ()))
    while waiting:
        one = waiting.pop()
        if one not in found and one in graph:
            found.add(one)
            waiting.extend(graph[one])
    return found


def descendants(graph: Graph, names: Iterable[str]) -> set[str]:
    """Return all names that come after one of these, directly or not."""
    after: dict[str, list[str]] = {name: [] for name in graph}
    for name, before in graph.items():
        for one in before:
            if one in after:
                after[one].append(name)
    return set().union(*(ancestors(after, name) for name in names))


def _known(graph: Graph) -> dict[str, list[str]]:
    return {name: [one for one in before if one in graph] for name, before in graph.items()}


def _from_the_least(cycle: Sequence[str]) -> list[str]:
    names = cycle[:-1]
    least = names.index(min(names))
    return [*names[least:], *names[:least], names[least]]
