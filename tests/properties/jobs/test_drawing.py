"""The drawing of any graph: each step once, every edge."""

from typing import Any

from hypothesis import given, settings

from mitosis.jobs.drawing import edges_of, text_graph
from mitosis.jobs.reading import definition_of
from tests.support.examples import examples
from tests.support.random_jobs import jobs


@settings(max_examples=examples(15), deadline=None)
@given(jobs(rich=False))
def test_every_step_stands_once_and_every_edge_is_listed(fields: dict[str, Any]) -> None:
    job = definition_of(fields)
    lines = text_graph(job).splitlines()[1:]
    assert sorted(line.lstrip("│├└─ ").split()[0] for line in lines) == sorted(job.steps)
    assert len(edges_of(job)) == sum(len(step.after) for step in job.steps.values())
