"""pydantic models for programs: the constructor raises InvalidRequest, which names the field."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Strict, ValidationError
from pydantic_core import ErrorDetails

from mitosis.contracts.checking import Language, shown, type_name
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.mismatch import joined_path

Integer = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
"""Strict types, in JSON as in Python: ``true`` is not 1, and "2" is a text."""

_SECRET = ("environment", "password", "token", "configuration", "metadata")
"""Fields whose values are not shown."""


class CheckedModel(BaseModel):
    """A model whose constructor raises :class:`InvalidRequest`.

    Other validators, such as FastAPI, report errors their own way.
    """

    def __init__(self, **values: Any) -> None:
        """Make the model of the fields by name.

        Raises:
            InvalidRequest: names the field and what would be right.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refused(error) from None

    # As in BaseModel: validation makes models without calling this constructor.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def refused(
    error: ValidationError, field: str = "", names: Mapping[str, str] | None = None
) -> InvalidRequest:
    """Return an InvalidRequest for pydantic's first error, in Python's terms.

    Args:
        error: from a model or a type.
        field: the caller's name of the value; the path in it is appended.
        names: the caller's names of its fields, by path.
    """
    first = error.errors(include_url=False)[0]
    path = path_of_error(first["loc"], field)
    message = describe_validation_error(first, "python")
    if first["type"] not in _COMPLETE and not any(word in path for word in _SECRET):
        given = shown(first["input"])
        message += "" if given in message else f", not {given}"
    return InvalidRequest(message, field=(names or {}).get(path, path) or None)


def path_of_error(location: Sequence[int | str], field: str = "") -> str:
    """Return the path of a location of pydantic, below ``field``.

    For an invalid key of an object, pydantic appends a last step ``[key]`` after the key itself.
    """
    return joined_path(location[:-1] if location and location[-1] == "[key]" else location, field)


_COMPLETE = frozenset({"missing", "extra_forbidden"})
"""Errors that have no value to show."""

_TYPES: dict[str, str] = {
    "bool_type": "bool",
    "bool_parsing": "bool",
    "int_type": "int",
    "int_parsing": "int",
    "int_from_float": "int",
    "float_type": "float",
    "float_parsing": "float",
    "string_type": "str",
    "none_required": "None",
    "dict_type": "dict",
    "model_type": "dict",
    "model_attributes_type": "dict",
    "list_type": "list",
    "tuple_type": "list",
    "set_type": "list",
    "frozen_set_type": "list",
    "uuid_type": "a UUID",
    "uuid_parsing": "a UUID",
    "callable_type": "callable",
    "iterable_type": "iterable",
    "is_instance_of": "an instance of {class}",
    "finite_number": "a finite number",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "greater than or equal to {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "less than or equal to {le}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "datetime_type": "a date and time as in ISO 8601",
    "datetime_parsing": "a date and time as in ISO 8601",
    "datetime_from_date_parsing": "a date and time as in ISO 8601",
    "timezone_aware": "a time with its timezone, as in 2026-11-28T12:00:00Z",
}
"""What a value must be, by the type of pydantic's error; braces hold names from its context."""

_SIZES: dict[str, tuple[str, str, str]] = {
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
}
"""Bounds of sizes: the bound, its name in the context, and the unit."""


def describe_validation_error(error: ErrorDetails, language: Language) -> str:
    """Say what is wrong and what would be right, from the type and context of a pydantic error."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return "unknown field"
    if kind == "missing":
        return "this field is required"
    if kind == "value_error":  # raised by one of our validators
        return str(context["error"])
    if expected := _TYPES.get(kind):
        return f"must be {type_name(expected, language).format(**context)}"
    if size := _SIZES.get(kind):
        bound, name, unit = size
        return f"must have {bound} {context[name]} {unit}{'' if context[name] == 1 else 's'}"
    return error["msg"]
