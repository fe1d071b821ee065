"""What a run of a definition consists of: steps, tasks, edges and counts, without making the tasks.

An array of a million tasks costs as much as one task until its tasks are asked for.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.task import SubmittedTask
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.fields import MAX_COUNT, Outcome
from mitosis.jobs.kinds import kind_of
from mitosis.jobs.order import layers_of
from mitosis.jobs.parameters import bind
from mitosis.jobs.references import parse_reference
from mitosis.jobs.rendering import Values, items_of, task_of


@dataclass(frozen=True, slots=True)
class ExpandedStep:
    name: str
    layer: int
    """From 0; a step comes in the first layer after all steps before it."""
    executor: str
    group: str
    after: tuple[tuple[str, Outcome], ...]
    when: str | None
    tasks: int | None
    """None: known when the steps before it have ended."""
    tasks_from: str | None
    """The reference that decides the number of tasks, if a run does."""
    task_edges: int | None
    """Edges from task to task; None as for ``tasks``."""


@dataclass(frozen=True, slots=True)
class Expansion:
    steps: tuple[ExpandedStep, ...]
    """In the order of the layers."""
    parameters: Mapping[str, Any]

    @property
    def known_tasks(self) -> int:
        """Tasks of the steps whose number is known."""
        return sum(step.tasks or 0 for step in self.steps)

    @property
    def is_complete(self) -> bool:
        """Whether the number of tasks of every step is known."""
        return all(step.tasks is not None for step in self.steps)

    @property
    def step_edges(self) -> int:
        return sum(len(step.after) for step in self.steps)

    @property
    def task_edges(self) -> int:
        return sum(step.task_edges or 0 for step in self.steps)


def expand(definition: JobDefinition, given: Mapping[str, Any]) -> Expansion:
    """Return what a run with these parameters consists of.

    Raises:
        InvalidRequest: a parameter is missing, unknown or of another type, or a number of tasks is not
            allowed.
    """
    values = Values(parameters=bind(definition, given))
    order = layers_of(definition.steps)
    steps = [
        _expanded(definition, name, number, values)
        for number, layer in enumerate(order)
        for name in layer
    ]
    return Expansion(tuple(steps), values.parameters)


def count_of(definition: JobDefinition, name: str, values: Values) -> int:
    """Return the number of tasks of a step; 1 for a step that is no array.

    Raises:
        InvalidRequest: a value is no number or list, or not in ``values`` yet.
    """
    step = definition.steps[origin_of(definition, name)]
    if (items := items_of(step, values)) is not None:
        return _checked(len(items), name, "over")
    if isinstance(step.count, str):
        try:
            value = values.value_of(parse_reference(step.count))
        except ValueError as error:
            raise InvalidRequest(str(error), field=f"steps.{name}.count") from None
        return _checked(value, name, "count")
    return 1 if step.count is None else step.count


def tasks_of(
    definition: JobDefinition, name: str, values: Values, indexes: Iterable[int] | None = None
) -> Iterator[SubmittedTask]:
    """Yield the tasks of a step with these indexes, one at a time; by default all.

    Raises:
        InvalidRequest: a reference has no value or one that does not fit; names the field.
    """
    step = definition.steps[name]
    count = count_of(definition, name, values)
    items = items_of(definition.steps[origin_of(definition, name)], values)
    for index in range(count) if indexes is None else indexes:
        item = None if items is None else items[index]
        own = replace(values, task={"index": index, "count": count}, item=item)
        try:
            yield task_of(step, own)
        except InvalidRequest as error:
            error.facts["field"] = f"steps.{name}.{error.facts.get('field', '')}".rstrip(".")
            raise


def origin_of(definition: JobDefinition, name: str) -> str:
    """Return the step that decides how many tasks a step has: itself, or the one it follows one by one."""
    while each := definition.steps[name].each_of:
        name = each[0]
    return name


def _expanded(definition: JobDefinition, name: str, layer: int, values: Values) -> ExpandedStep:
    step = definition.steps[name]
    origin = definition.steps[origin_of(definition, name)]
    source = next((one for one in (origin.count, origin.over) if isinstance(one, str)), None)
    is_open = source is not None and parse_reference(source).root == "results"
    tasks = None if is_open else count_of(definition, name, values)
    return ExpandedStep(
        name=name,
        layer=layer,
        executor=step.executed_by,
        group=step.group,
        after=tuple(sorted(step.after.items())),
        when=step.when,
        tasks=tasks,
        tasks_from=source,
        task_edges=None if tasks is None and step.each_of else len(step.each_of) * (tasks or 0),
    )


def _checked(value: Any, name: str, field: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    what = "one beyond it or below 0" if type(value) is int else kind_of(value)
    raise InvalidRequest(
        f"must be a number of tasks up to {MAX_COUNT}, not {what}",
        field=f"steps.{name}.{field}",
    )
