"""Which results a step needs: those of the steps that its templates, conditions and counts name."""

from collections.abc import Iterator, Set
from typing import Any

from mitosis.jobs.conditions import parse_condition, references_of
from mitosis.jobs.definition import JobDefinition, Step
from mitosis.jobs.expansion import origin_of
from mitosis.jobs.reference_checks import texts_in
from mitosis.jobs.references import Reference, parse_reference, parts_of

TEMPLATES = ("command", "arguments", "environment", "working_directory")


def results_named_by(definition: JobDefinition, name: str) -> Set[str]:
    """Return the names of the steps whose results are needed to create the tasks of a step."""
    step = definition.steps[name]
    origin = definition.steps[origin_of(definition, name)]
    found = [*_of_templates(step), *_of_array(step), *_of_array(origin)]
    if step.when is not None:
        found += references_of(parse_condition(step.when))
    names = {one.name for one in found if one.root == "results"}
    return {one for one in names if one is not None}


def _of_templates(step: Step) -> Iterator[Reference]:
    for field in TEMPLATES:
        value: Any = getattr(step, field)
        for _, text in texts_in(value, ()):
            for part in parts_of(text):
                if isinstance(part, Reference):
                    yield part


def _of_array(step: Step) -> Iterator[Reference]:
    for text in (step.count, step.over):
        if isinstance(text, str):
            yield parse_reference(text)
