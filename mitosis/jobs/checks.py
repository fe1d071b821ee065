"""What must hold between the fields of a definition: steps that exist, no cycle, references with a value.

Checks run over the parts that are valid by themselves, so that one error hides no other.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from mitosis.contracts.task import is_variable
from mitosis.contracts.variables import PREFIX
from mitosis.jobs.definition import MAIN_GROUP, GroupSettings, Parameter, Step
from mitosis.jobs.fields import Outcome
from mitosis.jobs.graph import find_cycle
from mitosis.jobs.parameters import type_problem
from mitosis.jobs.problems import Problem, Unknown
from mitosis.jobs.reference_checks import reference_problems
from mitosis.jobs.references import parts_of

WHAT_TO_RUN = ("command", "handler", "named_task")
_PROGRAM_OPTIONS = {
    re.compile(r"(ba|da|z|k|a)?sh"): "c",
    re.compile(r"python[\d.]*"): "c",
    re.compile(r"(perl|ruby|node)[\d.]*"): "e",
}
"""Programs that read the word after this option as a program."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of a definition; None for a part that is not valid by itself."""

    parameters: Mapping[str, Parameter | None]
    groups: Mapping[str, GroupSettings | None]
    steps: Mapping[str, Step | None]

    @property
    def valid_steps(self) -> dict[str, Step]:
        return {name: step for name, step in self.steps.items() if step is not None}


def problems_between(draft: Draft) -> Iterator[Problem]:
    """Yield what is wrong between the parts of a definition."""
    for name, parameter in draft.parameters.items():
        if parameter is not None:
            yield from _parameter_problems(name, parameter)
    for name, group in draft.groups.items():
        if group is not None:
            yield from _group_problems(name, group)
    for name, step in draft.valid_steps.items():
        yield from _step_problems(name, step, draft)
    yield from _order_problems(draft)
    yield from reference_problems(draft.parameters, draft.steps, draft.groups)


def _parameter_problems(name: str, parameter: Parameter) -> Iterator[Problem]:
    path = ("parameters", name)
    if parameter.required and parameter.default is not None:
        yield Problem((*path, "required"), "a parameter with a default is not required; remove one")
    without_choices = parameter.model_copy(update={"choices": None})
    for at, choice in enumerate(parameter.choices or ()):
        if choice is None or type_problem(without_choices, choice, path):
            kind = f"must be of the type {parameter.type}"
            yield Problem((*path, "choices", at), f"{kind}, not {choice!r:.60}")
    if parameter.choices == ():
        yield Problem((*path, "choices"), "must have at least one value")
    problem = type_problem(parameter, parameter.default, (*path, "default"))
    if parameter.default is not None and problem is not None:
        yield problem


def _group_problems(name: str, group: GroupSettings) -> Iterator[Problem]:
    path = ("groups", name)
    further = sorted(group.model_fields_set - {"standing"})
    if group.standing is not None and further:
        yield Problem(
            (*path, "standing"),
            f"a standing task group has settings of its own; remove {', '.join(further)}",
        )
    if group.probe is not None and group.setup is None:
        yield Problem((*path, "probe"), "needs a setup, which runs again when the probe fails")


def _step_problems(name: str, step: Step, draft: Draft) -> Iterator[Problem]:
    path = ("steps", name)
    given = [field for field in WHAT_TO_RUN if getattr(step, field) is not None]
    if len(given) != 1:
        what = f"not {' and '.join(given)}" if given else "and here is none"
        yield Problem(path, f"give exactly one of {', '.join(WHAT_TO_RUN)}, {what}")
    if step.arguments is not None and step.command is not None:
        yield Problem(
            (*path, "arguments"), "belong to a handler or a named task; put them into command"
        )
    if step.command is not None:
        yield from _command_problems((*path, "command"), step.command)
    for variable in step.environment:
        yield from _variable_problems((*path, "environment", variable), variable)
    folder = step.working_directory
    if folder is not None and not folder.startswith(("/", "{{")):
        yield Problem((*path, "working_directory"), f"must be an absolute path, not {folder!r:.60}")
    if step.group not in draft.groups and step.group != MAIN_GROUP:
        unknown = Unknown(step.group, [MAIN_GROUP, *draft.groups], "groups")
        yield Problem((*path, "group"), f"there is no group {step.group}", unknown=unknown)
    yield from _array_problems(name, step)


def _command_problems(path: tuple[str, ...], command: tuple[str, ...]) -> Iterator[Problem]:
    if not command or not command[0]:
        yield Problem(path, "must name a program, as in [gzip, -k, file]")
        return
    program = command[0].rpartition("/")[2]
    letter = next((c for names, c in _PROGRAM_OPTIONS.items() if names.fullmatch(program)), None)
    for at, (option, text) in enumerate(pairwise(command), 1):
        is_program = letter and re.fullmatch(rf"-[a-zA-Z]*{letter}", option)
        if is_program and any(not isinstance(part, str) for part in parts_of(text)):
            yield Problem(
                (*path, at),
                f"{program} would read the value as program text; pass it as an argument instead, as"
                ' in [sh, -c, \'echo "$1"\', sh, "{{ params.NAME }}"]',
            )


def _variable_problems(path: tuple[str, ...], name: str) -> Iterator[Problem]:
    if not is_variable(name, ""):
        yield Problem(path, "must be the name of an environment variable: no = and no NUL")
    elif name.startswith(PREFIX):
        yield Problem(path, f"names that start with {PREFIX} are set by Mitosis")


def _array_problems(name: str, step: Step) -> Iterator[Problem]:
    path = ("steps", name)
    if step.count is not None and step.over is not None:
        yield Problem((*path, "over"), "give count or over, not both")
    if step.each_of and (step.count is not None or step.over is not None):
        field = "count" if step.count is not None else "over"
        yield Problem(
            (*path, field),
            f"has the tasks of {step.each_of[0]}, which it follows one by one; remove {field}",
        )


def _order_problems(draft: Draft) -> Iterator[Problem]:
    steps = draft.valid_steps
    for name, step in steps.items():
        for before in step.after:
            if before not in draft.steps:
                unknown = Unknown(before, [one for one in draft.steps if one != name], "steps")
                path = ("steps", name, "after", before)
                yield Problem(path, "there is no such step", unknown=unknown)
    cycle = find_cycle({name: step.after for name, step in steps.items()})
    if cycle is not None:
        text = " → ".join(cycle)
        last = ("steps", cycle[-1], "after", cycle[-2])
        yield Problem(last, f"the steps wait for each other: {text}; remove one of these edges")
        return
    for name, step in steps.items():
        yield from _each_problems(name, step, draft)


def _each_problems(name: str, step: Step, draft: Draft) -> Iterator[Problem]:
    sources = {}
    for before in step.each_of:
        parent = draft.steps.get(before)
        if parent is None:
            continue
        path = ("steps", name, "after", before)
        if not parent.is_array:
            yield Problem(path, f"{before} is one task and no array; write {Outcome.SUCCESS}")
        sources[before] = size_source(before, draft.valid_steps)
    if len(set(sources.values())) > 1:
        first, second = list(sources)[:2]
        yield Problem(
            ("steps", name, "after", second),
            f"{first} and {second} may have different tasks; follow one of them one by one, and the"
            f" other with {Outcome.SUCCESS}",
        )


def size_source(name: str, steps: Mapping[str, Step]) -> tuple[str, str]:
    """Return where the tasks of an array come from; arrays with the same source have the same tasks."""
    while (step := steps.get(name)) is not None and step.each_of:
        name = step.each_of[0]
    if step is None or (step.count is None and step.over is None):
        return ("step", name)
    if step.count is not None:
        return ("count", str(step.count))
    return ("over", step.over) if isinstance(step.over, str) else ("over", repr(step.over))
