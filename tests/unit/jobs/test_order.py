from typing import Any

from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.order import RunEnd, StepEnd, next_steps, run_end, steps_in_order
from mitosis.jobs.reading import definition_of


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
