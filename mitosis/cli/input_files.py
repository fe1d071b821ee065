"""Reads the files that options name; errors name the option."""

import json
import sys
from pathlib import Path
from typing import Any

from mitosis.contracts.bounded_files import MOST_DOCUMENT_BYTES, read_bounded, read_stream
from mitosis.contracts.errors import InvalidRequest

STANDARD_INPUT = Path("-")


def read_bytes(path: Path, option: str, most: int = MOST_DOCUMENT_BYTES) -> bytes:
    """Return the content of a file of at most ``most`` bytes, or of standard input for ``-``.

    Raises:
        InvalidRequest: it cannot be read, or has more.
    """
    try:
        if path == STANDARD_INPUT:
            return read_stream(sys.stdin.buffer, most)
        return read_bounded(path, most)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}", option=option) from None


def read_text(path: Path, option: str, most: int = MOST_DOCUMENT_BYTES) -> str:
    """Return the content of a file as text in UTF-8; see :func:`read_bytes`."""
    try:
        return read_bytes(path, option, most).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}",
            option=option,
        ) from None


def read_json_object(path: Path, option: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        InvalidRequest: it is not JSON, or not an object; names the line and column.
    """
    try:
        value = json.loads(read_text(path, option))
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"{path} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}",
            option=option,
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} must contain a JSON object", option=option)
    return value
