from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.fields import Outcome
from mitosis.jobs.order import RunEnd, StepEnd, next_steps, run_end, steps_in_order
from mitosis.jobs.reading import definition_of
from tests.support.examples import examples
from tests.support.random_jobs import jobs

ENDS = st.sampled_from([StepEnd.SUCCEEDED, StepEnd.FAILED, StepEnd.SKIPPED, StepEnd.CANCELLED])


@settings(max_examples=examples(15), deadline=None)
@given(jobs(rich=False), st.data())
def test_every_step_is_decided_once_and_none_before_its_conditions_hold(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    """Steps end in any order and in any way: the run comes to its end, by the rules of each edge."""
    definition = definition_of(fields)
    started: set[str] = set()
    ended: dict[str, StepEnd] = {}
    while run_end(definition, ended) is None:
        turn = next_steps(definition, started, ended)
        for name in turn.skipped:
            assert name not in started | ended.keys()
            ended[name] = StepEnd.SKIPPED
        for name in turn.ready:
            assert name not in started | ended.keys()
            _check_allowed(definition, name, started, ended)
            started.add(name)
        running = sorted(started - ended.keys())
        assert running or not next_steps(definition, started, ended).ready
        if running:
            ended[data.draw(st.sampled_from(running))] = data.draw(ENDS)
    assert ended.keys() == definition.steps.keys()
    for name, step in definition.steps.items():
        if name not in started:
            assert any(
                not _met(outcome, ended[before]) for before, outcome in step.after.items()
            ), name


def _check_allowed(
    definition: JobDefinition, name: str, started: set[str], ended: dict[str, StepEnd]
) -> None:
    for before, outcome in definition.steps[name].after.items():
        if outcome is Outcome.EACH and before not in ended:
            assert before in started
        else:
            assert _met(outcome, ended[before])


def _met(outcome: Outcome, end: StepEnd) -> bool:
    allowed = {
        Outcome.SUCCESS: {StepEnd.SUCCEEDED},
        Outcome.FAILURE: {StepEnd.FAILED},
        Outcome.EACH: {StepEnd.SUCCEEDED, StepEnd.FAILED},
        Outcome.ALWAYS: set(StepEnd),
    }
    return end in allowed[outcome]


def job(**after: Any) -> JobDefinition:
    steps = {name: {"command": ["x"], "after": edges} for name, edges in after.items()}
    return definition_of({"name": "j", "steps": steps})


def test_cleanup_waits_for_all_that_it_comes_after_however_that_ends() -> None:
    pipeline = job(
        a=[], b=[], c=["a", "b"], d={"c": "failure"}, clean={"c": "always", "b": "always"}
    )
    assert next_steps(pipeline, [], {}).ready == ("a", "b")
    # a has failed and b runs: c is decided only when b has ended too, so clean does not start beside b
    assert next_steps(pipeline, ["a", "b"], {"a": StepEnd.FAILED}) == next_steps(
        pipeline, ["a", "b"], {}
    )
    turn = next_steps(pipeline, ["a", "b"], {"a": StepEnd.FAILED, "b": StepEnd.SUCCEEDED})
    assert turn.skipped == ("c", "d")
    assert turn.ready == ("clean",)


def test_the_run_is_a_function_of_how_its_steps_have_ended() -> None:
    two = job(a=[], b={"a": "failure"})
    ok, failed, skipped = StepEnd.SUCCEEDED, StepEnd.FAILED, StepEnd.SKIPPED
    assert run_end(two, {"a": ok}) is None
    assert run_end(two, {"a": ok, "b": skipped}) is RunEnd.SUCCESS
    assert run_end(two, {"a": failed, "b": ok}) is RunEnd.FAILED
    assert run_end(two, {"a": failed, "b": StepEnd.CANCELLED}) is RunEnd.FAILED
    assert run_end(two, {"a": StepEnd.CANCELLED, "b": skipped}) is RunEnd.CANCELLED


def test_the_order_does_not_depend_on_how_the_file_is_written() -> None:
    assert steps_in_order(job(z=[], a=["z"], b=[])) == ["b", "z", "a"]
    assert steps_in_order(job(b=[], a=["z"], z=[])) == ["b", "z", "a"]
