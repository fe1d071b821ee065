"""Graphs of names: cycles and layers, iteratively, so that a long chain needs no deep stack.

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


def _known(graph: Graph) -> dict[str, list[str]]:
    return {name: [one for one in before if one in graph] for name, before in graph.items()}


def _from_the_least(cycle: Sequence[str]) -> list[str]:
    names = cycle[:-1]
    least = names.index(min(names))
    return [*names[least:], *names[:least], names[least]]
