"""The state of a workflow's loop does not grow with what it receives; tests/workflow has its waits."""

from typing import Any

from workflows.poke_loop import PokeLoop


def contents(value: Any) -> int:
    """How many objects a value is made of."""
    if isinstance(value, dict):
        return 1 + sum(map(contents, value.values()))
    if isinstance(value, list | tuple | set):
        return 1 + sum(map(contents, value))
    fields = getattr(value, "__dict__", None) or {
        name: getattr(value, name) for name in getattr(value, "__slots__", ())
    }
    return 1 + contents(fields) if fields else 1


def test_a_hundred_thousand_pokes_are_one() -> None:
    loop = PokeLoop()
    loop.received()
    loop.poke()
    one = contents(loop)
    for _ in range(100_000):
        loop.received()
        loop.poke()
    assert contents(loop) == one
    assert loop.poked
    loop.look()
    assert not loop.poked
