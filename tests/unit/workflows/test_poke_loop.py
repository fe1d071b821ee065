"""The state of a workflow's loop does not grow with what it receives; tests/workflow has its waits."""

from itertools import pairwise
from typing import Any

from workflows.poke_loop import EVENTS_BEFORE_CONTINUE_AS_NEW, PokeLoop, calm_seconds


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


def test_the_longer_a_history_the_shorter_the_calm_that_ends_its_run() -> None:
    lengths = range(0, 2 * EVENTS_BEFORE_CONTINUE_AS_NEW, 50)
    calms = [calm_seconds(events) for events in lengths]
    assert calms[0] == calm_seconds(EVENTS_BEFORE_CONTINUE_AS_NEW) == 1.0
    assert all(shorter <= longer for longer, shorter in pairwise(calms))
    # five pokes per second leave calms of 0.2 s between them
    assert calm_seconds(EVENTS_BEFORE_CONTINUE_AS_NEW + 800) < 0.2
    assert calm_seconds(51_200) == 0.05
