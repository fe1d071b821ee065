"""Templates filled with values: the argv elements, variables and arguments of one task.

A value becomes an element or a part of one and is never parsed again, so it cannot become a word of a
shell, another element or another template. Errors name references and kinds, and show no value.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.task import SubmittedTask, submission
from mitosis.jobs.conditions import holds, parse_condition
from mitosis.jobs.definition import Step
from mitosis.jobs.kinds import kind_of
from mitosis.jobs.references import Reference, parse_reference, parts_of


@dataclass(frozen=True, slots=True)
class Values:
    """What the templates of a run may name."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    """By step: the result of its task, or the list of the results of its tasks; null where there is none."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """``id``, and ``nominal_time`` and ``nominal_date`` of a scheduled run."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """``name`` and ``version``."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """``index`` and ``count``."""
    item: Any = None

    def value_of(self, reference: Reference) -> Any:
        """Return the value at a place.

        Raises:
            ValueError: there is none; names the part of the path that is missing.
        """
        roots = {
            "params": self.parameters,
            "results": self.results,
            "run": self.run,
            "job": self.job,
            "task": self.task,
            "item": self.item,
        }
        value: Any = roots[reference.root]
        for at, step in enumerate(reference.path):
            value = _at(value, step, Reference(reference.root, reference.path[:at]))
        return value


def task_of(step: Step, values: Values) -> SubmittedTask:
    """Return one task of a step, with the values of that task.

    Raises:
        InvalidRequest: a reference has no value or one that does not fit; names the field.
    """
    fields: dict[str, Any] = {
        "environment": {
            name: filled(text, values, f"environment.{name}")
            for name, text in step.environment.items()
        },
        "priority": step.priority,
        "retry": step.retry.policy(),
        "kill_grace_seconds": step.kill_grace_seconds,
    }
    if step.command is not None:
        fields["command"] = argv_of(step.command, values)
    if step.handler is not None:
        fields["handler"] = step.handler
    if step.named_task is not None:
        fields["named_task"] = step.named_task
    if step.arguments is not None:
        fields["arguments"] = filled_value(step.arguments, values, "arguments")
    if step.working_directory is not None:
        fields["working_directory"] = filled(step.working_directory, values, "working_directory")
    if step.task_timeout is not None:
        fields["timeout_seconds"] = step.task_timeout.total_seconds()
    return submission(fields)


def argv_of(command: tuple[str, ...], values: Values) -> list[str]:
    """Return the elements of a command.

    An element that is one reference to a list becomes as many elements; null, also in a list, is left out.

    Raises:
        InvalidRequest: a reference has no value or one that does not fit; names the element.
    """
    argv: list[str] = []
    for index, text in enumerate(command):
        where = f"command[{index}]"
        parts = parts_of(text)
        if len(parts) != 1 or isinstance(parts[0], str):
            argv.append(filled(text, values, where))
            continue
        found = _looked_up(parts[0], values, where)
        if isinstance(found, list | tuple):
            argv.extend(_text(one, parts[0], where) for one in found if one is not None)
        elif found is not None:
            argv.append(_text(found, parts[0], where))
    return argv


def items_of(step: Step, values: Values) -> tuple[Any, ...] | None:
    """Return the items over which a step runs; None for a step without ``over``.

    Raises:
        InvalidRequest: the value there is no list.
    """
    if step.over is None or isinstance(step.over, tuple):
        return step.over
    found = _looked_up(parse_reference(step.over), values, "over")
    if not isinstance(found, list | tuple):
        raise InvalidRequest(f"{step.over} must be a list, not {kind_of(found)}", field="over")
    return tuple(found)


def is_wanted(step: Step, values: Values) -> bool:
    """Return whether the condition of a step holds; a step without one is wanted.

    Raises:
        InvalidRequest: values cannot be compared.
    """
    if step.when is None:
        return True
    try:
        return holds(parse_condition(step.when), values.value_of)
    except ValueError as error:
        raise InvalidRequest(str(error), field="when") from None


def filled_value(template: Any, values: Values, where: str) -> Any:
    """Return JSON with its templates filled; a text that is one reference becomes the value itself.

    Raises:
        InvalidRequest: a reference has no value or one that does not fit; names the place.
    """
    if isinstance(template, str):
        parts = parts_of(template)
        if len(parts) == 1 and isinstance(parts[0], Reference):
            return _looked_up(parts[0], values, where)
        return filled(template, values, where)
    if isinstance(template, Mapping):
        return {
            name: filled_value(one, values, f"{where}.{name}") for name, one in template.items()
        }
    if isinstance(template, list | tuple):
        return [filled_value(one, values, f"{where}[{at}]") for at, one in enumerate(template)]
    return template


def filled(text: str, values: Values, where: str) -> str:
    """Return a text with the values of its references; ``where`` is its field, for the error.

    Raises:
        InvalidRequest: a reference has no value, or one that cannot stand within text.
    """
    return "".join(
        part if isinstance(part, str) else _text(_looked_up(part, values, where), part, where)
        for part in parts_of(text)
    )


def _looked_up(reference: Reference, values: Values, where: str) -> Any:
    try:
        return values.value_of(reference)
    except ValueError as error:
        raise InvalidRequest(str(error), field=where) from None


def _text(value: Any, reference: Reference, where: str) -> str:
    if value is None or isinstance(value, list | tuple):
        what = "has no value" if value is None else "is a list"
        raise InvalidRequest(
            f"{reference} {what}, which cannot stand within text; only a whole element of a command"
            " may be one",
            field=where,
        )
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _at(value: Any, step: str | int, before: Reference) -> Any:
    if isinstance(step, str) and isinstance(value, Mapping) and step in value:
        return value[step]
    if isinstance(step, int) and isinstance(value, list | tuple) and step < len(value):
        return value[step]
    without = " without it" if isinstance(value, Mapping | list | tuple) else ""
    missing = Reference(before.root, (*before.path, step))
    raise ValueError(f"{missing} has no value: {before} is {kind_of(value)}{without}")
