"""Files that options name: their text, their JSON, and errors that name the option."""

import json
import sys
from pathlib import Path
from typing import Any

from mitosis.contracts.errors import InvalidRequest

STANDARD_INPUT = Path("-")


def read_bytes(path: Path, option: str) -> bytes:
    """The content of a file, of standard input for ``-``.

    Raises:
        InvalidRequest: it cannot be read; names the option.
    """
    if path == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}", option=option) from None


def read_text(path: Path, option: str) -> str:
    """As :func:`read_bytes`, UTF-8."""
    try:
        return read_bytes(path, option).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}",
            option=option,
        ) from None


def read_json_object(path: Path, option: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        InvalidRequest: it is not JSON, or not an object; names the option, line and column.
    """
    try:
        value = json.loads(read_text(path, option))
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"{path} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}",
            option=option,
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} must hold a JSON object", option=option)
    return value
