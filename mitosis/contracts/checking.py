"""Checks values from programs and peers; every error names the field and what would be right.

For msgspec types, so workers may import it; ``mitosis.contracts.checked_model`` does the same for pydantic.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.json_depth import too_deep_text
from mitosis.contracts.mismatch import Mismatch, find_mismatch, joined_path

T = TypeVar("T")

_MOST_SHOWN = 60


class _Words(NamedTuple):
    """The names of types."""

    none: str
    boolean: str
    integer: str
    number: str
    text: str
    array: str
    object: str


Language = Literal["json", "python"]
"""The terms that an error uses: those of JSON, or those of Python."""

_WORDS: dict[Language, _Words] = {
    "json": _Words(
        "null", "true or false", "an integer", "a number", "a string", "an array", "an object"
    ),
    "python": _Words("None", "True or False", "an int", "a number", "a str", "a list", "a dict"),
}


def shown(value: object) -> str:
    """Return the repr of a value, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def type_name(kind: str, language: Language) -> str:
    """Return the name of a Python type with its article: ``list`` as ``an array`` or ``a list``."""
    words = _WORDS[language]
    names = {
        "None": words.none,
        "bool": words.boolean,
        "int": words.integer,
        "float": words.number,
        "str": words.text,
        "bytes": "base64 text",
        "UUID": "a UUID",
        "list": words.array,
        "tuple": words.array,
        "dict": words.object,
    }
    return names.get(kind, kind)


def describe_mismatch(mismatch: Mismatch, language: Language) -> str:
    """Say what is wrong and what would be right, as in ``must be an integer >= 1, not 0``."""
    problem, bound, got = mismatch.problem, mismatch.bound, mismatch.got
    if problem == "missing":
        return "this field is required"
    if problem == "unknown":
        return "unknown field"
    if problem == "choice":
        return f"must be {_any_of(mismatch.expected)}, not {shown(got)}"
    expected = _any_of([type_name(kind, language) for kind in mismatch.expected])
    wrong = {
        "key": f"every key must be {expected}, not {_type_of(got, language)}",
        "type": f"must be {expected}, not {_type_of(got, language)}",
        "bound": f"must be {expected} {bound}, not {shown(got)}",
        "length": f"must be {expected} of length {bound}, not {got}",
    }
    return wrong[problem]


def checked(value: object, kind: type[T], field: str = "") -> T:
    """Convert the value to ``kind``, if JSON can represent it; fields of type Any are not checked.

    Args:
        value: a mapping of fields, a struct, or builtins.
        kind: a struct or another type that msgspec knows.
        field: the caller's name of the value; the path in it is appended.

    Raises:
        InvalidRequest: names the field and what would be right.
    """
    fields = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
    try:
        return msgspec.convert(fields, kind)
    except (msgspec.ValidationError, RecursionError):
        return _checked_as_json(fields, kind, field)


def _checked_as_json(value: Any, kind: type[T], field: str) -> T:
    """Check the value in its JSON form: an Enum or a UUID counts as text."""
    try:
        plain = msgspec.to_builtins(value)
    except _UNENCODABLE as error:
        raise _unencodable(value, error, field) from None
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise refusal(plain, kind, error, field, "python") from None


def refusal(
    value: object, kind: Any, error: Exception, field: str, language: Language
) -> InvalidRequest:
    """Return the InvalidRequest for a value that msgspec refused as a ``kind``.

    Without a mismatch, as for a duplicate key in an object, the message is that of ``error``.
    """
    mismatch = find_mismatch(value, kind)
    if mismatch is None:
        return InvalidRequest(str(error), field=field or None)
    return InvalidRequest(
        describe_mismatch(mismatch, language), field=joined_path(mismatch.path, field) or None
    )


_TOO_DEEP = f"{too_deep_text()}, or contains itself"
_UNENCODABLE = (TypeError, ValueError, RecursionError, OverflowError)


def encoded(value: msgspec.Struct, field: str = "") -> bytes:
    """Return the value as JSON.

    Raises:
        InvalidRequest: JSON cannot represent a field; names it and says why.
    """
    try:
        return msgspec.json.encode(value)
    except _UNENCODABLE as error:
        raise _unencodable(msgspec.structs.asdict(value), error, field) from None


def _unencodable(value: Any, error: Exception, field: str) -> InvalidRequest:
    """Return the InvalidRequest for the outermost field that JSON cannot represent."""
    for name, item in value.items() if isinstance(value, dict) else ():
        try:
            msgspec.json.encode(item)
        except _UNENCODABLE as found:
            return InvalidRequest(_why(found), field=joined_path([str(name)], field))
    return InvalidRequest(_why(error), field=field or None)


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "contains a lone surrogate, as in a file name that is not UTF-8"
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    return f"must be what JSON can carry: {error}"


def _any_of(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def _type_of(value: object, language: Language) -> str:
    if language == "json" and isinstance(value, bool):
        return "a boolean"
    name = "None" if value is None else type(value).__name__
    return type_name(name, language) if language == "json" else name
