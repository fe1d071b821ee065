"""Find values in JSON text that cannot be stored. This is slow, so it is used only for suspicious text.

Text is suspicious when a decoder has refused it or when it contains an escaped NUL character.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from mitosis.contracts.json_integers import LONGEST_INTEGER

_NUL_ESCAPE = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""``\\u0000`` in JSON text, unless its backslash is itself escaped."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Unfit:
    """A placeholder for a number that cannot be represented."""

    def __init__(self, why: str) -> None:
        self.why = why


def holds_nul(raw: bytes) -> bool:
    """Return whether this JSON text holds a NUL character, which PostgreSQL cannot store."""
    return b"\\u0000" in raw and _NUL_ESCAPE.search(raw) is not None


def without_nul(raw: bytes) -> bytes:
    """Return the JSON text with U+FFFD for every NUL character."""
    return _NUL_ESCAPE.sub(rb"\1\\ufffd", raw) if holds_nul(raw) else raw


def nul_field(raw: bytes) -> str | None:
    """Return the path of the first text with NUL, as in ``tags[2]``; for a key, the path of its object.

    ``raw`` is known to be JSON.
    """
    for path, value in _values(msgspec.json.decode(raw), ""):
        if isinstance(value, str) and "\0" in value:
            return path
    return None


def unfit(raw: bytes) -> tuple[str, str] | None:
    """Return path and reason of the first value that cannot be stored; None if there is none."""
    try:
        document = json.loads(raw, parse_int=_integer, parse_float=_float, parse_constant=_constant)
    except (ValueError, RecursionError):
        return None
    for path, value in _values(document, ""):
        if isinstance(value, _Unfit):
            return path, value.why
        if isinstance(value, str) and (half := _SURROGATE.search(value)):
            code = f"\\u{ord(half[0]):04x}"
            return path, f"contains a lone surrogate ({code}), which is half a character"
    return None


def repeated_key(raw: bytes) -> str | None:
    """Return the first key that stands twice in one object; None if there is none.

    ``raw`` is known to be JSON.
    """
    repeated: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) < len(pairs):
            names = [key for key, _ in pairs]
            repeated.extend(key for key in document if names.count(key) > 1)
        return document

    json.loads(raw, object_pairs_hook=look)
    return repeated[0] if repeated else None


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Iterate over texts and numbers with their paths; a key has the path of its object."""
    pending = [(path, value)]  # not recursive: JSON may be nested as deeply as the stack is high
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict):
            for key in value:
                yield path or "body", key
            pending += [(f"{path}.{key}".lstrip("."), value[key]) for key in reversed(value)]
        elif isinstance(value, list):
            pending += [(f"{path}[{index}]", value[index]) for index in reversed(range(len(value)))]
        else:
            yield path or "body", value


def _integer(text: str) -> int | _Unfit:
    if len(text) <= LONGEST_INTEGER:
        return int(text)
    return _Unfit(f"is an integer of {len(text.lstrip('-'))} digits, more than can be kept")


def _float(text: str) -> float | _Unfit:
    number = float(text)
    return number if math.isfinite(number) else _Unfit(f"{text[:40]} is out of range")


def _constant(text: str) -> _Unfit:
    return _Unfit(f"{text} is no number of JSON")
