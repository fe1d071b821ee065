"""Whether every reference of a definition has a value when it is used."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError
from typing import Any

from mitosis.jobs.conditions import parse_condition, references_of
from mitosis.jobs.definition import GroupSettings, Parameter, Step
from mitosis.jobs.fields import Outcome, ParameterType
from mitosis.jobs.order import layers_of
from mitosis.jobs.problems import Path, Problem, Unknown
from mitosis.jobs.references import Reference, parse_reference, parts_of, references_in

RUN_FIELDS = ("id", "nominal_time", "nominal_date")
JOB_FIELDS = ("name", "version")
TASK_FIELDS = ("index", "count")
_FIELDS = {"run": RUN_FIELDS, "job": JOB_FIELDS, "task": TASK_FIELDS}


def reference_problems(
    parameters: Mapping[str, Parameter | None],
    steps: Mapping[str, Step | None],
    groups: Mapping[str, GroupSettings | None],
) -> Iterator[Problem]:
    """Yield the references that have no value."""
    known = {name: step for name, step in steps.items() if step is not None}
    order = _Order(known)
    for name in known:
        yield from _StepReferences(name, known, set(steps), parameters, order).problems()
    for name, group in groups.items():
        if group is not None:
            yield from _hook_problems(name, group, parameters)
    yield from _plain_problems(known, parameters)


def _plain_problems(
    steps: Mapping[str, Step], parameters: Mapping[str, Parameter | None]
) -> Iterator[Problem]:
    """Yield references where values are plain: they would be passed on as they are written."""
    plain: dict[Path, Any] = {
        ("steps", name, "over"): step.over
        for name, step in steps.items()
        if isinstance(step.over, tuple)
    }
    for name, parameter in parameters.items():
        if parameter is not None:
            plain["parameters", name, "default"] = parameter.default
    for place, value in plain.items():
        for path, text in texts_in(value, place):
            try:
                found = references_in(text)
            except ValueError:  # braces of another language
                continue
            if found:
                yield Problem(
                    path, f"{found[0]} is not replaced in a value; write it where the value is used"
                )


def texts_in(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the texts in a JSON value, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts_in(item, (*path, name))
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from texts_in(item, (*path, at))


class _Order:
    """What has ended when each step starts, as sets of bits: the work grows with the edges only."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self._bit = {name: 1 << at for at, name in enumerate(steps)}
        self._before: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._items: dict[str, bool] = {}
        self.has_cycle = False
        try:
            order = layers_of(steps)
        except CycleError:
            self.has_cycle = True
            return
        for name in (one for layer in order for one in layer):
            self._add(name, steps[name])

    def _add(self, name: str, step: Step) -> None:
        before = ended = 0
        has_item = step.over is not None
        for one, outcome in step.after.items():
            if one not in self._bit:
                continue
            before |= self._bit[one] | self._before[one]
            if outcome is Outcome.EACH:  # they start together
                ended |= self._ended[one]
                has_item = has_item or self._items[one]
            else:
                ended |= self._bit[one] | self._before[one]
        self._before[name], self._ended[name], self._items[name] = before, ended, has_item

    def may_use(self, name: str, results_of: str) -> bool:
        """Return whether a step has ended when this one starts; true where a cycle hides the order."""
        return self.has_cycle or bool(self._ended[name] & self._bit[results_of])

    def has_item(self, name: str) -> bool:
        return self.has_cycle or self._items[name]


class _StepReferences:
    """The references of one step."""

    def __init__(
        self,
        name: str,
        steps: Mapping[str, Step],
        names: set[str],
        parameters: Mapping[str, Parameter | None],
        order: _Order,
    ) -> None:
        self._name, self._step, self._steps = name, steps[name], steps
        self._names, self._parameters = names, parameters
        self._order = order

    def problems(self) -> Iterator[Problem]:
        path, step = ("steps", self._name), self._step
        yield from self._of_tasks(path)
        for field in ("count", "over"):
            if isinstance(text := getattr(step, field), str):
                yield from self._one(parse_reference(text), (*path, field))
                yield from self._kind(parse_reference(text), field)
        if step.when is not None:
            for reference in references_of(parse_condition(step.when)):
                yield from self._one(reference, (*path, "when"))

    def _of_tasks(self, path: Path) -> Iterator[Problem]:
        for field in ("command", "arguments", "environment", "working_directory"):
            for where, text in texts_in(getattr(self._step, field), (*path, field)):
                parts = parts_of(text)
                alone = len(parts) == 1 and field in {"command", "arguments"}
                for part in parts:
                    if isinstance(part, Reference):
                        yield from self._one(part, where, is_alone=alone, is_of_task=True)

    def _one(
        self, reference: Reference, path: Path, *, is_alone: bool = True, is_of_task: bool = False
    ) -> Iterator[Problem]:
        if reference.root == "params":
            yield from _parameter_problem(reference, path, self._parameters, is_alone=is_alone)
        elif reference.root == "results":
            yield from self._result(reference, path)
        elif reference.root in {"run", "job"}:
            yield from _field_problem(reference, path)
        elif not is_of_task:
            yield Problem(path, f"{reference} differs from task to task, and this is of the step")
        elif reference.root == "task":
            yield from _field_problem(reference, path)
        elif not self._order.has_item(self._name):
            yield Problem(path, f"{reference} needs over, which names the items of the step")

    def _result(self, reference: Reference, path: Path) -> Iterator[Problem]:
        step = reference.name
        if step is None or step not in self._names:
            unknown = Unknown(step or "", self._names - {self._name}, "steps")
            yield Problem(path, f"{reference} names no step", unknown=unknown)
        elif step in self._steps and not self._order.may_use(self._name, step):
            outcome = self._step.after.get(step)
            if outcome is Outcome.EACH:
                how = f"{step} has not ended then; write after: {{{step}: {Outcome.SUCCESS}}}"
            else:
                how = f"{self._name} does not come after {step}; add it to after"
            yield Problem(path, f"{reference} may have no value: {how}")

    def _kind(self, reference: Reference, field: str) -> Iterator[Problem]:
        wanted = ParameterType.INTEGER if field == "count" else ParameterType.LIST
        parameter = self._parameters.get(reference.name or "")
        if reference.root != "params" or parameter is None or len(reference.path) != 1:
            return
        path = ("steps", self._name, field)
        if parameter.type is not wanted:
            yield Problem(path, f"{reference} is of the type {parameter.type}, not {wanted}")
        elif not parameter.is_required and parameter.default is None:
            yield Problem(path, f"{reference} may have no value; give it a default")


def _parameter_problem(
    reference: Reference,
    path: Path,
    parameters: Mapping[str, Parameter | None],
    *,
    is_alone: bool,
) -> Iterator[Problem]:
    name = reference.name
    if name is None or name not in parameters:
        unknown = Unknown(name or "", parameters, "parameters")
        yield Problem(path, f"{reference} names no parameter", unknown=unknown)
        return
    parameter = parameters[name]
    if parameter is None:
        return
    if len(reference.path) > 1:
        if parameter.type not in {ParameterType.LIST, ParameterType.OBJECT}:
            yield Problem(path, f"{reference} has no value: {name} is of the type {parameter.type}")
    elif not is_alone and parameter.type is ParameterType.LIST:
        yield Problem(
            path,
            f"{reference} is a list and cannot stand within text; make it an element of its own",
        )
    elif not is_alone and not parameter.is_required and parameter.default is None:
        yield Problem(
            path,
            f"{reference} may have no value and cannot stand within text; give it a default, or make"
            " it an element of its own, which is left out then",
        )


def _field_problem(reference: Reference, path: Path) -> Iterator[Problem]:
    fields = _FIELDS[reference.root]
    if len(reference.path) != 1 or reference.path[0] not in fields:
        names = " or ".join(f"{reference.root}.{field}" for field in fields)
        yield Problem(path, f"there is no {reference}; write {names}")


def _hook_problems(
    name: str, group: GroupSettings, parameters: Mapping[str, Parameter | None]
) -> Iterator[Problem]:
    """Hooks run once per host, for the whole run: they may name its parameters, the run and the job."""
    for field in ("setup", "teardown", "probe"):
        hook = getattr(group, field)
        path = ("groups", name, field)
        fields = {} if hook is None else {"command": hook.command, "environment": hook.environment}
        for where, text in texts_in(fields, path):
            try:
                found = parts_of(text)
            except ValueError as error:
                yield Problem(where, str(error))
                continue
            for part in found:
                if not isinstance(part, Reference):
                    continue
                if part.root == "params":
                    alone = len(found) == 1 and where[3] == "command"
                    yield from _parameter_problem(part, where, parameters, is_alone=alone)
                elif part.root in {"run", "job"}:
                    yield from _field_problem(part, where)
                else:
                    yield Problem(
                        where, f"{part} is of a step; a hook may name params, run and job"
                    )
