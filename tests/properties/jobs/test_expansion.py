"""The counts of any definition are those of its tasks and edges, one by one."""

from typing import Any

from hypothesis import given, settings

from mitosis.jobs.expansion import expand, tasks_of
from mitosis.jobs.reading import definition_of
from mitosis.jobs.rendering import Values
from tests.support.examples import examples
from tests.support.random_jobs import jobs

RUN: dict[str, Any] = {
    "run": {"id": "r", "nominal_time": None},
    "job": {"name": "job", "version": 1},
}


@settings(max_examples=examples(12), deadline=None)
@given(jobs())
def test_counts_equal_the_tasks_and_edges_one_by_one(fields: dict[str, Any]) -> None:
    definition = definition_of(fields)
    expansion = expand(definition, {"date": "2026-11-28"})
    values = Values(parameters=expansion.parameters, **RUN)
    tasks = {name: list(tasks_of(definition, name, values)) for name in definition.steps}
    assert {step.name: step.tasks for step in expansion.steps} == {
        name: len(one) for name, one in tasks.items()
    }
    assert expansion.known_tasks == sum(map(len, tasks.values()))
    assert expansion.is_complete
    edges = [(a, b, o) for b, step in definition.steps.items() for a, o in step.after.items()]
    assert expansion.step_edges == len(edges)
    assert expansion.task_edges == sum(len(tasks[b]) for _, b, o in edges if o == "each")
    at = {step.name: step.layer for step in expansion.steps}
    assert all(at[a] < at[b] for a, b, _ in edges)
