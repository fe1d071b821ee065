"""Converts the arguments of a call to JSON; refuses, by name, those that JSON would change or lose."""

import dataclasses
import math
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any, NoReturn

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.json_depth import MAX_DEPTH, too_deep_text
from mitosis.contracts.json_integers import LONGEST_TEXT, is_too_long

ALLOWED = "None, bool, int, float, str, list, tuple (arrives as a list) and dict with str keys"
_ONLY_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)

Arguments = list[Any] | dict[str, Any]


def json_arguments(
    function: str, signature: Signature | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Arguments:
    """Return the arguments of a call as a task stores them: a list, or a dict if keywords are used.

    Args:
        function: its name, for errors.
        signature: the call must fit; None where Python knows none.
        args: those by position.
        kwargs: those by name.

    Raises:
        InvalidRequest: the call does not fit the function, or JSON cannot carry an argument.
    """
    names = _fitting(function, signature, args, kwargs)
    plain = [_plain(value, _named(names, i), 0) for i, value in enumerate(args)]
    if not kwargs:
        return plain
    keywords = {key: _plain(value, key, 0) for key, value in kwargs.items()}
    if not args:
        return keywords
    if len(names) < len(args):
        raise InvalidRequest(
            f"{function}: a task cannot mix keywords with positional-only arguments",
            field="arguments",
        )
    return {**dict(zip(names, plain, strict=False)), **keywords}


def _fitting(
    function: str, signature: Signature | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[str]:
    """Return the names of the positional parameters, up to the first that is positional only."""
    if signature is None:
        return []
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidRequest(f"{function}: {error}", field="arguments") from None
    names = []
    for parameter in signature.parameters.values():
        if parameter.kind in _ONLY_POSITIONAL:
            break
        names.append(parameter.name)
    return names


def _named(names: list[str], index: int) -> str:
    return names[index] if index < len(names) else f"[{index}]"


def _plain(value: Any, where: str, depth: int) -> Any:
    """Return the value in plain JSON types; instances of subclasses are reduced to them."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int | float):
        return _number(value, where)
    return _nested(value, where, depth)


def _number(value: float, where: str) -> float:
    if isinstance(value, int):
        if is_too_long(value):
            _refuse(where, f"is {LONGEST_TEXT}; send it in hex, as text")
        return int(value)
    if not math.isfinite(value):
        _refuse(where, f"is {value}, which JSON does not have; send None or text instead")
    return float(value)


def _nested(value: Any, where: str, depth: int) -> Any:
    if depth > MAX_DEPTH - 2:  # the list or dict of all arguments is one level
        _refuse(where, f"{too_deep_text()}, or contains itself")
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return _plain_dict(value, where, depth)
    return _refuse(where, f"is a {_type(value)}{_hint(value)}. What arguments can be: {ALLOWED}")


def _plain_dict(value: dict[Any, Any], where: str, depth: int) -> dict[str, Any]:
    plain = {}
    for key, item in value.items():
        if not isinstance(key, str):
            _refuse(where, f"has the key {key!r}: keys must be str, as JSON has no others")
        plain[_text(key, f"a key of {where}")] = _plain(item, f"{where}[{key!r}]", depth + 1)
    return plain


def _text(value: str, where: str) -> str:
    if "\0" in value:
        _refuse(where, "contains a NUL character, which cannot be stored")
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse(
            where, "contains a lone surrogate, as in a file name that is not UTF-8; send it encoded"
        )
    return str.__str__(value)  # of an Enum that is a str: its value


def _hint(value: Any) -> str:
    kind = type(value)
    if dataclasses.is_dataclass(value):
        return "; send dataclasses.asdict() of it"
    for method in ("isoformat", "tolist", "model_dump"):
        if hasattr(kind, method):
            return f"; send .{method}() of it"
    if isinstance(value, bytes | bytearray | memoryview):
        return "; send base64 text of it, or the name of a file"
    if isinstance(value, set | frozenset):
        return "; send sorted() of it"
    return "; send str() of it" if hasattr(kind, "__fspath__") else ""


def _type(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _refuse(where: str, why: str) -> NoReturn:
    raise InvalidRequest(f"argument {where} {why}", field=f"arguments.{where}")
