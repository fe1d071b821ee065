"""Rules for the names of task groups, hosts, user groups and tags, as types for pydantic models."""

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from mitosis.contracts.ids import as_uuid
from mitosis.contracts.plain_text import unprintable

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
TAG = r"^[^\s,\x00]+$"
MAX_TAG = 100


def _named(text: str) -> str:
    if not re.fullmatch(NAME, text) or text.endswith("\n"):
        raise ValueError(
            "must be 1 to 100 letters, digits, dots, underscores and dashes, the first a letter or digit"
        )
    return text


def _no_id(text: str) -> str:
    if as_uuid(text) is not None:
        raise ValueError("must not be a UUID: ids are accepted in the same places as names")
    return text


def _tagged(text: str) -> str:
    if not re.fullmatch(TAG, text) or len(text) > MAX_TAG:
        raise ValueError(f"must be 1 to {MAX_TAG} characters without spaces and commas")
    return _plain(text)


def _plain(text: str) -> str:
    if (char := unprintable(text)) is not None:
        raise ValueError(
            f"must not contain control or invisible characters such as U+{ord(char):04X}"
        )
    return text


Name = Annotated[str, AfterValidator(_named), WithJsonSchema({"type": "string", "pattern": NAME})]
"""1 to 100 letters, digits, dots, underscores and dashes, starting with a letter or digit."""
NewName = Annotated[Name, AfterValidator(_no_id)]
"""A :data:`Name` that is not a UUID, because a UUID is read as an id where both are accepted."""
PlainText = Annotated[str, AfterValidator(_plain)]
"""Text without control characters, and without those that change the direction of text."""
Tag = Annotated[
    str,
    AfterValidator(_tagged),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_TAG, "pattern": TAG}),
]
