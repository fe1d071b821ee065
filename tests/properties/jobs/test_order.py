"""The order in which the steps of any graph are decided."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.fields import Outcome
from mitosis.jobs.order import StepEnd, next_steps, run_end
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
