"""From the fields of a definition to the checked model: every problem is found, not only the first."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mitosis.contracts.checked_model import describe_validation_error
from mitosis.contracts.checking import shown
from mitosis.contracts.json_depth import MAX_DEPTH
from mitosis.contracts.json_integers import LONGEST_TEXT, is_too_long
from mitosis.jobs.canonical import canonical_json
from mitosis.jobs.checks import Draft, problems_between
from mitosis.jobs.definition import MAX_STEPS, GroupSettings, JobDefinition, Parameter, Step
from mitosis.jobs.problems import MOST_PROBLEMS, Path, Problem, listed, near, refusal

M = TypeVar("M", bound=BaseModel)
MAX_DEFINITION_BYTES = 1_000_000
OTHER_WORDS: Mapping[str, str] = {
    "args": "arguments",
    "array": "count",
    "concurrency": "max_concurrent_tasks",
    "depends_on": "after",
    "env": "environment",
    "foreach": "over",
    "for_each": "over",
    "if": "when",
    "max_attempts": "retry: {max_attempts: …}",
    "needs": "after",
    "params": "parameters",
    "retries": "retry: {max_attempts: …}",
    "run": "command",
    "tasks": "steps",
    "timeout_seconds": "timeout",
    "with_items": "over",
    "workdir": "working_directory",
}
"""What other tools call a field, and what it is called here."""
_DECISIVE = {"after", "command", "count", "handler", "named_task", "over"}
"""Fields of a step on which the checks of other fields and steps depend."""
_SECRET = ("environment",)
_PARTS: Mapping[str, type[BaseModel]] = {
    "parameters": Parameter,
    "groups": GroupSettings,
    "steps": Step,
}


def definition_of(fields: object) -> JobDefinition:
    """Return the definition with these fields, JSON values, checked as a whole.

    Raises:
        InvalidRequest: lists all problems; so does its fact ``problems``.
    """
    definition, problems = examine(fields)
    if definition is None:
        raise refusal(problems)
    return definition


def examine(fields: object) -> tuple[JobDefinition | None, list[Problem]]:
    """Return the definition, or the problems that it has."""
    if not isinstance(fields, Mapping):
        return None, [
            Problem((), f"must be an object with the fields of a job, not {shown(fields)}")
        ]
    if problem := _json_problem(fields):
        return None, [problem]
    for name in _PARTS:
        if len(given := _members(fields, name)) > MAX_STEPS:  # before each of them costs time
            return None, [
                Problem((name,), f"must have at most {MAX_STEPS} items, not {len(given)}")
            ]
    problems: list[Problem] = []
    draft = Draft(
        _part("parameters", fields, Parameter, problems),
        _part("groups", fields, GroupSettings, problems),
        _part("steps", fields, Step, problems),
    )
    problems += _whole_problems(fields)
    problems += listed(problems_between(draft))
    if problems:
        return None, problems[:MOST_PROBLEMS]
    return _made(fields)


def _made(fields: Mapping[str, Any]) -> tuple[JobDefinition | None, list[Problem]]:
    try:
        definition = JobDefinition.model_validate(fields)
        size = len(canonical_json(definition).encode())
    except ValidationError as error:
        return None, list(_described(error, JobDefinition, ()))
    if size > MAX_DEFINITION_BYTES:
        text = f"may have {MAX_DEFINITION_BYTES} bytes as JSON, and this one has {size}"
        return None, [Problem((), f"a definition {text}; pass long lists as parameters")]
    return definition, []


def _members(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given = fields.get(name)
    return given if isinstance(given, Mapping) else {}


def _part(
    name: str, fields: Mapping[str, Any], model: type[M], problems: list[Problem]
) -> dict[str, M | None]:
    """Return the members of one part by name, and add what is wrong with each of them."""
    given = fields.get(name)
    if not isinstance(given, Mapping):
        return {}
    found: dict[str, M | None] = {}
    for key, value in given.items():
        if len(problems) > MOST_PROBLEMS:  # names are known, so that no other problem comes of it
            found[str(key)] = None
            continue
        try:
            found[str(key)] = model.model_validate(value)
        except ValidationError as error:
            found[str(key)] = _rest(value, error, model)
            problems += _described(error, model, (name, str(key)))
    return found


def _rest(value: object, error: ValidationError, model: type[M]) -> M | None:
    """Return a step without its wrong fields, so that the others are checked too.

    None if one of them decides the order or the tasks of the step: what others say of it cannot be judged;
    and if they are more than are listed.
    """
    wrong = {str(one["loc"][0]) for one in error.errors(include_url=False) if one["loc"]}
    if model is not Step or not isinstance(value, Mapping) or not wrong:
        return None
    if len(wrong) > MOST_PROBLEMS:
        return None
    if any(_meant(name) in _DECISIVE for name in wrong):
        return None
    try:
        return model.model_validate({key: one for key, one in value.items() if key not in wrong})
    except ValidationError:
        return None


def _meant(name: str) -> str:
    """Return the field that a wrong name stands for."""
    near_fields = get_close_matches(name, Step.model_fields, n=1, cutoff=0.6)
    return OTHER_WORDS.get(name) or (near_fields[0] if near_fields else name)


def _whole_problems(fields: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the fields of the job itself, with an example in the place of its valid parts."""
    own = {name: value for name, value in fields.items() if name not in _PARTS}
    for name, model in _PARTS.items():
        if name in fields:
            given = fields[name]
            is_object = isinstance(given, Mapping)
            own[name] = {key: model.model_construct() for key in given} if is_object else given
    try:
        JobDefinition.model_validate(own)
    except ValidationError as error:
        yield from _described(error, JobDefinition, ())


def _described(error: ValidationError, model: type[BaseModel], path: Path) -> Iterator[Problem]:
    for one in error.errors(include_url=False)[:MOST_PROBLEMS]:
        location = one["loc"][:-1] if one["loc"][-1:] == ("[key]",) else one["loc"]
        yield Problem((*path, *location), _message(one, model))


def _message(error: ErrorDetails, model: type[BaseModel]) -> str:
    kind, location = error["type"], error["loc"]
    if kind == "extra_forbidden":
        return f"unknown field; {_hint(str(location[-1]), _fields_at(model, location[:-1]))}"
    message = describe_validation_error(error, "json")
    if kind in {"missing", "value_error"} or any(word in location for word in _SECRET):
        return message
    if kind in {"too_long", "too_short"}:
        return f"{message}, not {len(error['input'])}"
    message += f", not {shown(error['input'])}"
    if kind == "string_type" and isinstance(error["input"], int | float):
        message += "; write it in quotes"
    if kind == "tuple_type" and location[-1:] == ("command",):
        message += "; write its words as a list, as in [./measure, --fast]: there is no shell"
    return message


def _hint(name: str, known: list[str]) -> str:
    other = OTHER_WORDS.get(name)
    if other is not None and other.partition(":")[0] in known:
        return f"it is called {other} here"
    return near(name, known, "fields")


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the fields of the object at a location below a model."""
    for step in location:
        annotation = model.model_fields[step].annotation if step in model.model_fields else None
        inner = [annotation, *getattr(annotation, "__args__", ())]
        models = [one for one in inner if isinstance(one, type) and issubclass(one, BaseModel)]
        if not models:
            return []
        model = models[0]
    return list(model.model_fields)


def _json_problem(value: object) -> Problem | None:
    """Return where a value is nothing that JSON can carry; iterative, for values from programs."""
    waiting: list[tuple[Path, object]] = [((), value)]
    while waiting:
        path, one = waiting.pop()
        if len(path) > MAX_DEPTH:
            return Problem(
                path[:3], f"is nested deeper than {MAX_DEPTH} levels, or contains itself"
            )
        if isinstance(one, Mapping):
            if wrong := [key for key in one if not isinstance(key, str)]:
                return Problem(path, f"every key must be a string, not {shown(wrong[0])}")
            waiting += [((*path, key), item) for key, item in one.items()]
        elif isinstance(one, list | tuple):
            waiting += [((*path, at), item) for at, item in enumerate(one)]
        elif not _is_json(one):
            what = LONGEST_TEXT if isinstance(one, int) else shown(one)
            return Problem(path, f"must be what JSON can carry, not {what}")
    return None


def _is_json(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, str):  # text with half of a surrogate pair has no UTF-8
        return value.isascii() or value.encode(errors="replace").decode() == value
    return value is None or (isinstance(value, int) and not is_too_long(value))
