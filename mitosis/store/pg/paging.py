"""Keyset pages: the cursor of a page is its list and the key of its last row, as opaque text."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

from mitosis.contracts.errors import InvalidRequest


def encode_cursor(of: str, *key: str | int) -> str:
    """Return the key of the last row of a page of the list ``of`` as text for ``after``."""
    return base64.urlsafe_b64encode(json.dumps((of, *key)).encode()).decode().rstrip("=")


def decode_cursor(of: str, text: str, *types: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the key in a cursor, each part of the given type (``str``, ``int``).

    Raises:
        InvalidRequest: the cursor is not from :func:`encode_cursor` for this list.
    """
    key: list[Any] = []
    try:
        found, *key = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        good = (
            found == of
            and len(key) == len(types)
            and all(type(part) is kind for part, kind in zip(key, types, strict=True))
        )
    except (ValueError, binascii.Error, TypeError, RecursionError):
        good = False
    if not good:
        raise InvalidRequest("must be the next of an earlier page of this list", field="after")
    return tuple(key)


def page_limit(limit: int, most: int) -> int:
    """Return ``limit`` if it is valid.

    Raises:
        InvalidRequest: it is not between 1 and ``most``.
    """
    if not 1 <= limit <= most:
        raise InvalidRequest(f"must be between 1 and {most}, not {limit}", field="limit")
    return limit
