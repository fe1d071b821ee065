"""Turns validation errors of pydantic into errors that name the option and what would be right."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from mitosis.contracts.checked_model import describe_validation_error, path_of_error
from mitosis.contracts.duration import parse_duration
from mitosis.contracts.errors import InvalidRequest, MitosisError
from mitosis.contracts.http import PositiveDuration

M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], values: Mapping[str, Any], options: Mapping[str, str]) -> M:
    """Return the model of ``values``.

    ``options`` maps a field path to the option that sets it; the path "" stands for all others.

    Raises:
        InvalidRequest: names the first invalid field, its option, and what would be right.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = path_of_error(first["loc"])
        message = describe_validation_error(first, "python")
        if first["type"] == "extra_forbidden":
            message = f"there is no such field; the fields here are: {_known(model, first['loc'])}"
        elif not isinstance(first["input"], dict) and repr(first["input"]) not in message:
            message += f", not {first['input']!r}"
        raise InvalidRequest(message, field=field, option=option_of(field, options)) from None


@contextmanager
def named(options: Mapping[str, str]) -> Iterator[None]:
    """Add the option to an error of the API that names a field."""
    try:
        yield
    except MitosisError as error:
        if field := error.facts.get("field"):
            error.facts.setdefault("option", option_of(str(field), options))
            if error.facts["option"] is None:
                del error.facts["option"]
        raise


def option_of(field: str, options: Mapping[str, str]) -> str | None:
    """Return the option of a field, or of the nearest field above it that has one."""
    path = field.replace("[", ".").split(".")
    for end in range(len(path), 0, -1):
        if option := options.get(".".join(path[:end])):
            return option
    return options.get("")


def duration(text: str | None, option: str) -> timedelta | None:
    """Parse a duration such as ``10m``; None stays None.

    Raises:
        InvalidRequest: names the option and what would be right.
    """
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidRequest(str(error), option=option) from None


def positive_duration(text: str | None, option: str) -> timedelta | None:
    """Parse a duration and require that it is positive."""
    span = duration(text, option)
    if span is not None:
        value_of(PositiveDuration, span, option)
    return span


def value_of(kind: Any, value: object, option: str) -> Any:
    """Return a value as a type of the contracts; the error names the option.

    Raises:
        InvalidRequest: names the option and what would be right.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        message = describe_validation_error(error.errors(include_url=False)[0], "python")
        raise InvalidRequest(message, option=option) from None


def seconds(text: str | None, option: str) -> float | None:
    """Parse a duration and return it in seconds."""
    span = duration(text, option)
    return None if span is None else span.total_seconds()


def _known(model: type[BaseModel], location: Sequence[int | str]) -> str:
    """Return the names of the fields of the object at ``location``."""
    for step in location[:-1]:
        inner = _model_in(model.model_fields[step].annotation) if isinstance(step, str) else None
        if inner is None:
            return "see the reference"
        model = inner
    return ", ".join(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in ``Model`` or ``Model | None``."""
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next(
        (one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None
    )
