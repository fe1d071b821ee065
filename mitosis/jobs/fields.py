"""Types of the fields of a job definition: each normalises what a user may write to one form."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from mitosis.contracts.checked_model import Integer
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.named_tasks import parse_task_name
from mitosis.jobs.conditions import parse_condition
from mitosis.jobs.references import parse_reference, parts_of

MAX_COUNT = 1_000_000
"""Tasks of one step."""
STEP_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,62}$"
_RESULTS_OF = re.compile(r"\s*results\s+of\s+(\S+)\s*")
_PERCENT = re.compile(r"(\d{1,3})\s*%")


class Outcome(StrEnum):
    """What a step has to come to before the step after it starts."""

    SUCCESS = "success"
    """Every task of it has succeeded."""
    FAILURE = "failure"
    """It has failed, or was ended by a timeout or a failure limit."""
    ALWAYS = "always"
    """It has ended in any way; skipped counts too."""
    EACH = "each"
    """Task i starts when task i of that step has succeeded; both steps have the same tasks."""


class ParameterType(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"


def _step_name(text: str) -> str:
    if not re.fullmatch(STEP_NAME, text) or text.endswith("\n"):
        raise ValueError(
            "must be 1 to 63 letters, digits, underscores and dashes, the first a letter or underscore"
        )
    return text


def _template(text: str) -> str:
    parts_of(text)
    if "\0" in text:
        raise ValueError("must not contain a NUL byte")
    return text


def _after(value: object) -> object:
    """Accept one name and a list of names for steps that must have succeeded."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return value
    if not all(isinstance(name, str) for name in names):
        raise ValueError("must be names of steps, or an object such as {prepare: success}")
    return dict.fromkeys(names, Outcome.SUCCESS)


def _count(value: object) -> object:
    if isinstance(value, str):
        reference = parse_reference(value)
        if reference.root not in {"params", "results"} or reference.name is None:
            raise ValueError("must be a number of tasks, {{ params.NAME }} or {{ results.STEP }}")
        return str(reference)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    raise ValueError(f"must be a number of tasks up to {MAX_COUNT}, or {{{{ params.NAME }}}}")


def _over(value: object) -> object:
    if isinstance(value, list | tuple):
        if len(value) > MAX_COUNT:
            raise ValueError(f"must have at most {MAX_COUNT} items, not {len(value)}")
        return value
    if isinstance(value, str):
        found = _RESULTS_OF.fullmatch(value)
        reference = parse_reference(f"results.{found[1]}" if found else value)
        if reference.root in {"params", "results"} and reference.name is not None:
            return str(reference)
    raise ValueError("must be a list, params.NAME or results.STEP")


def _failures(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    found = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None and int(found[1]) <= 100:
        return f"{int(found[1])}%"
    raise ValueError("must be a number of tasks, or a share of them such as 5%")


def _named_task(text: str) -> str:
    try:
        parse_task_name(text, "named_task")
    except InvalidRequest as error:
        raise ValueError(error.message) from None
    return text


def _condition(text: str) -> str:
    parse_condition(text)
    return text.strip()


def _arguments(value: object) -> object:
    if not isinstance(value, Mapping | list | tuple):
        raise ValueError("must be an object of arguments by name, or a list of them")  # noqa: TRY004
    if isinstance(value, Mapping) and not all(isinstance(name, str) for name in value):
        raise ValueError("every key must be a string")
    check_templates(value)
    return value


def check_templates(value: object) -> None:
    """Check the templates in a JSON value.

    Raises:
        ValueError: the first that is none.
    """
    if isinstance(value, str):
        parts_of(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            check_templates(item)
    elif isinstance(value, list | tuple):
        for item in value:
            check_templates(item)


def _schema(*kinds: dict[str, Any], text: str) -> WithJsonSchema:
    one = kinds[0] if len(kinds) == 1 else {"anyOf": list(kinds)}
    return WithJsonSchema({**one, "description": text})


_STRING = {"type": "string"}
_NAME = {"type": "string", "pattern": STEP_NAME}
_OUTCOMES = {
    "type": "object",
    "propertyNames": {"pattern": STEP_NAME},
    "additionalProperties": {"enum": [str(one) for one in Outcome]},
}

StepName = Annotated[str, AfterValidator(_step_name), WithJsonSchema(_NAME)]
Template = Annotated[str, AfterValidator(_template)]
"""Text with ``{{ … }}`` in it."""
After = Annotated[
    dict[StepName, Outcome],
    BeforeValidator(_after),
    _schema(
        _NAME,
        {"type": "array", "items": _NAME},
        _OUTCOMES,
        text="Steps that come first: a name, names, or what each has to come to.",
    ),
]
Count = Annotated[
    Integer | str,
    BeforeValidator(_count),
    _schema(
        {"type": "integer", "minimum": 0, "maximum": MAX_COUNT},
        _STRING,
        text="Number of tasks, or {{ params.NAME }} or {{ results.STEP }} of an integer.",
    ),
]
Over = Annotated[
    str | tuple[Any, ...],
    BeforeValidator(_over),
    _schema(
        _STRING,
        {"type": "array"},
        text="A list, params.NAME or results.STEP: one task for each item.",
    ),
]
FailureLimit = Annotated[
    Integer | str,
    BeforeValidator(_failures),
    _schema(
        {"type": "integer", "minimum": 0, "maximum": MAX_COUNT},
        {"type": "string", "pattern": r"^\d{1,3}\s*%$"},
        text="Number of tasks, or a share of them such as 5%.",
    ),
]
When = Annotated[str, AfterValidator(_condition)]
NamedTask = Annotated[str, AfterValidator(_named_task)]
HANDLER = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$"
Handler = Annotated[str, Field(pattern=HANDLER)]
Arguments = Annotated[dict[str, Any] | tuple[Any, ...], BeforeValidator(_arguments)]
"""JSON whose texts may be templates; a text that is one reference becomes the value itself."""


def allowed_failures(limit: int | str | None, tasks: int) -> int | None:
    """Return after how many failed tasks of so many the rest is cancelled: one more than this."""
    if limit is None or isinstance(limit, int):
        return limit
    return tasks * int(limit.removesuffix("%")) // 100
