"""Pauses between repetitions: they grow, start over after a change, and bound how much an hour can cost."""

from hypothesis import given
from hypothesis import strategies as st

from workflows.repetition import LONGEST_PAUSE_SECONDS, RepeatedStep


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 30)), max_size=400))
def test_executions_are_bounded_by_changes(attempts: list[tuple[str, float]]) -> None:
    """Whatever the rhythm of the tries: some for each change of the step, and a few per hour."""
    repeated, now, executed, changed, last = RepeatedStep(), 0.0, 0, 0, ""
    for step, wait in attempts:
        now += wait
        if repeated.pause(step, now) == 0:
            repeated.executed(step, now)
            executed += 1
            changed += step != last
            last = step
    assert executed <= 10 * changed + now / LONGEST_PAUSE_SECONDS
