"""The parameters of a run: given values are checked against the definition and completed by defaults."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mitosis.contracts.checking import shown
from mitosis.contracts.errors import InvalidRequest, TooLarge
from mitosis.contracts.json_depth import is_deeper, too_deep_text
from mitosis.jobs.definition import JobDefinition, Parameter
from mitosis.jobs.fields import ParameterType
from mitosis.jobs.kinds import kind_of
from mitosis.jobs.problems import Path, Problem, Unknown, listed, refusal

MAX_VALUE_BYTES = 1_000_000
"""Of all parameters of a run, or of one result, as JSON."""
_KINDS: Mapping[ParameterType, tuple[tuple[type, ...], str]] = {
    ParameterType.STRING: ((str,), "a string"),
    ParameterType.INTEGER: ((int,), "an integer"),
    ParameterType.NUMBER: ((int, float), "a number"),
    ParameterType.BOOLEAN: ((bool,), "true or false"),
    ParameterType.LIST: ((list, tuple), "a list"),
    ParameterType.OBJECT: ((dict,), "an object"),
}


def bind(definition: JobDefinition, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for every parameter of the job.

    Raises:
        InvalidRequest: lists all that is missing, unknown or of another type.
        TooLarge: together they have more than :data:`MAX_VALUE_BYTES`.
    """
    if problems := listed(_problems(definition, given)):
        raise refusal(problems)
    values = {name: given.get(name, one.default) for name, one in definition.parameters.items()}
    check_size(values, "the parameters of a run", "parameters")
    return values


def parse_value(definition: JobDefinition, name: str, text: str) -> Any:
    """Return the value that a text of the command line, as in ``-p NAME=TEXT``, stands for.

    Text stays text for a parameter of the type string; otherwise it is JSON.

    Raises:
        InvalidRequest: there is no such parameter, or the text is not of its type.
    """
    parameter = definition.parameters.get(name)
    if parameter is None:
        raise refusal(listed([_unknown(definition, name)]))
    if parameter.type is ParameterType.STRING:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if problem := type_problem(parameter, value, ("parameters", name)):
        raise refusal([problem])
    return value


def check_size(value: Any, what: str, field: str) -> int:
    """Return the bytes of a value as JSON.

    Raises:
        InvalidRequest: JSON cannot represent it, or it is nested too deep.
        TooLarge: more than :data:`MAX_VALUE_BYTES`; says what to do.
    """
    try:
        raw = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"must be what JSON can carry: {error}", field=field) from None
    if len(raw) > MAX_VALUE_BYTES:
        raise TooLarge(
            f"{what} may have {MAX_VALUE_BYTES} bytes as JSON, and here are {len(raw)}; put the data"
            " into a file or an object that the tasks can read, and pass its name",
            field=field,
            limit_bytes=MAX_VALUE_BYTES,
        )
    if is_deeper(raw):
        raise InvalidRequest(too_deep_text(), field=field)
    return len(raw)


def type_problem(parameter: Parameter, value: Any, path: Path) -> Problem | None:
    """Return what is wrong with a value of a parameter; None is right only where it is not required.

    The text names no value: users who may only read see it with a schedule or a run, and it may be a secret.
    """
    if value is None and not parameter.is_required:
        return None
    kinds, name = _KINDS[parameter.type]
    is_right = isinstance(value, kinds)
    if isinstance(value, bool):  # in JSON, true is not 1
        is_right = parameter.type is ParameterType.BOOLEAN
    if not is_right:
        return Problem(path, f"must be {name}, not {kind_of(value)}")
    if parameter.choices is not None and value not in parameter.choices:
        return Problem(path, f"must be one of {', '.join(map(shown, parameter.choices))}")
    return None


def _problems(definition: JobDefinition, given: Mapping[str, Any]) -> Iterator[Problem]:
    for name in given:
        if name not in definition.parameters:
            yield _unknown(definition, name)
    for name, parameter in definition.parameters.items():
        path = ("parameters", name)
        if name in given:
            if problem := type_problem(parameter, given[name], path):
                yield problem
        elif parameter.is_required:
            yield Problem(path, f"is required and has no default; give it with -p {name}=VALUE")


def _unknown(definition: JobDefinition, name: str) -> Problem:
    unknown = Unknown(name, definition.parameters, "parameters")
    path = ("parameters", name)
    return Problem(path, f"{definition.name} has no such parameter", unknown=unknown)
