"""How deep JSON may be nested: what every reader of the system can read back. Standard library only.

The weakest reader decides. Measured: jiter, the JSON parser of pydantic, reads 200 levels; pydantic
writes 254; ``json`` of Python and msgspec read about 990, less when the stack is high; PostgreSQL reads
thousands.
"""

import re

READABLE_DEPTH = 200
"""Levels that the weakest reader takes, with the answer around a value."""
MAX_DEPTH = 190
"""Levels of one value: of the arguments of a task, or of a result. An answer adds up to 6 around it."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_AS_PAIRS = bytes.maketrans(b"[{]}", b"(())")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_deeper(raw: bytes, limit: int = MAX_DEPTH) -> bool:
    """Return whether this JSON text nests arrays and objects deeper than ``limit``.

    Two counts in almost every case. Otherwise each pass removes the innermost pairs, so the work grows
    with the depth, up to ``limit`` passes.
    """
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    left = _STRING.sub(b"", raw).translate(_AS_PAIRS, _NOT_BRACKETS)
    for _ in range(limit):
        if not left:
            return False
        left = left.replace(b"()", b"")
    return bool(left)


def too_deep_text(limit: int = MAX_DEPTH) -> str:
    """Return the reason, for errors."""
    return f"is nested deeper than {limit} levels, more than every reader can read back"
