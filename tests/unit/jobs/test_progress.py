"""How steps and runs end, as a function of the counts of their tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.lifecycle import RunState, StepState
from mitosis.contracts.runs import StopKind
from mitosis.jobs.progress import (
    MOST_REASON,
    StepProgress,
    cleans_up,
    end_of,
    may_create,
    never_complete,
    result_of,
    room,
    storable,
    too_many_failures_of_run,
)
from mitosis.jobs.reading import definition_of

DEFINITION = definition_of(
    {
        "name": "job",
        "max_failures": "50%",
        "max_concurrent_tasks": 4,
        "steps": {
            "a": {"command": ["a"], "count": 10},
            "b": {"command": ["b"], "after": {"a": "each"}},
            "c": {"command": ["c"], "after": {"a": "always", "b": "always"}},
            "d": {"command": ["d"], "after": {"a": "always", "b": "success"}},
        },
    }
)


def step(name: str = "a", state: str = "running", **fields: object) -> StepProgress:
    return StepProgress(id=1, name=name, state=StepState(state), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counts", "stopped_by", "end"),
    [
        ((3, 3, 3, 0, 0), None, "succeeded"),
        ((3, 3, 2, 1, 0), None, "failed"),
        ((3, 3, 2, 0, 1), None, "failed"),
        ((3, 3, 2, 0, 0), None, None),
        ((3, 2, 2, 0, 0), None, None),
        ((0, 0, 0, 0, 0), None, "succeeded"),
        ((3, 3, 3, 0, 0), "cancel", "succeeded"),
        ((3, 2, 2, 0, 0), "cancel", "cancelled"),
        ((3, 3, 2, 0, 1), "cancel", "cancelled"),
        ((3, 3, 2, 1, 0), "cancel", "failed"),
        ((3, 3, 3, 0, 0), "timeout", "failed"),
        ((3, 2, 1, 1, 0), "failures", "failed"),
        ((3, 2, 1, 0, 0), "timeout", None),
    ],
)
def test_the_end_of_a_step(
    counts: tuple[int, ...], stopped_by: StopKind | None, end: str | None
) -> None:
    total, created, succeeded, failed, cancelled = counts
    one = step(
        total=total,
        created=created,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
        stopped_by=stopped_by,
    )
    assert end_of(one) == end
    one.state = StepState.WAITING
    assert end_of(one) is None


@pytest.mark.parametrize(
    ("states", "stopped_by", "result"),
    [
        (("succeeded", "succeeded", "skipped", "succeeded"), None, RunState.SUCCESS),
        (("failed", "succeeded", "skipped", "succeeded"), None, RunState.FAILED),
        (("succeeded", "running", "skipped", "succeeded"), None, None),
        (("succeeded", "cancelled", "failed", "cancelled"), "cancel", RunState.CANCELLED),
        (("succeeded", "succeeded", "succeeded", "succeeded"), "cancel", RunState.SUCCESS),
        (("succeeded", "failed", "succeeded", "succeeded"), "cancel", RunState.FAILED),
        (("succeeded", "succeeded", "cancelled", "cancelled"), "timeout", RunState.FAILED),
    ],
)
def test_the_end_of_a_run(
    states: tuple[str, ...], stopped_by: StopKind | None, result: RunState | None
) -> None:
    steps = [step(name, state) for name, state in zip("abcd", states, strict=True)]
    assert result_of(DEFINITION, steps, stopped_by) == result


@given(created=st.integers(0, 10), before=st.integers(0, 10), before_ended=st.booleans())
def test_a_step_has_no_more_tasks_than_the_one_it_follows(
    created: int, before: int, before_ended: bool
) -> None:
    created = min(created, before)
    first = step("a", "failed" if before_ended else "running", total=10, created=before)
    second = step("b", total=10, created=created)
    steps = {"a": first, "b": second}
    assert may_create(DEFINITION, second, steps) == before - created
    stuck = before_ended and created == before < 10
    assert (never_complete(DEFINITION, second, steps) is not None) == stuck


def test_only_steps_that_always_follow_clean_up() -> None:
    assert [cleans_up(DEFINITION.steps[name]) for name in "abcd"] == [False, False, True, False]


def test_a_share_of_failures_is_of_the_tasks_of_started_steps() -> None:
    first = step("a", total=10, created=10, failed=5)
    waiting = [step(name, "waiting") for name in "bcd"]
    assert too_many_failures_of_run(DEFINITION, [first, *waiting]) is None
    first.failed = 6
    assert "6 tasks have failed" in str(too_many_failures_of_run(DEFINITION, [first, *waiting]))
    first.source = 7
    assert too_many_failures_of_run(DEFINITION, [first, *waiting]) is None, "of another run"


def test_room_is_what_open_tasks_leave() -> None:
    steps = [step("a", total=10, created=5, succeeded=2), step("b", total=3, created=3)]
    assert room(DEFINITION, steps) == 0
    assert room(DEFINITION, steps[:1]) == 1


def test_a_reason_can_be_stored() -> None:
    assert storable("a\0b") == "a␀b"
    assert len(str(storable("x" * 10_000))) == MOST_REASON
    assert storable(None) is None
