"""Durations as people write them: a number of seconds, or ``90s``, ``10m``, ``1h30m``, ``2d``."""

import math
import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

MAX_DURATION = timedelta(days=3650)
"""Small enough that adding it to a time does not overflow."""

MOST_CHARACTERS = 100
"""Of a text: the pattern takes time that grows with the square of its length."""
MOST_SECONDS = 1e18
"""Of an integer: a larger one may not fit into a float."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(value: object) -> timedelta:
    """Convert seconds as a number, or text like ``1h30m``.

    Raises:
        ValueError: says what would be right.
    """
    if isinstance(value, timedelta):
        return value
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds):
        raise ValueError(
            f"{value!r:.60} is not a duration; write seconds or text like 90s, 10m, 1h30m"
        )
    if abs(seconds) > MAX_DURATION.total_seconds():
        raise ValueError(f"{value!r:.60} is longer than {MAX_DURATION.days} days")
    return timedelta(seconds=seconds)


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, int):
            value = max(-MOST_SECONDS, min(value, MOST_SECONDS))
        return float(value)
    if isinstance(value, str) and len(value) <= MOST_CHARACTERS:
        text = value.strip().replace(" ", "")
        if re.fullmatch(r"\d+(?:\.\d+)?", text):
            return float(text)
        if text and _PART.sub("", text) == "":
            return sum(float(n) * _UNITS[u] for n, u in _PART.findall(text))
    return None


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(lambda value: value.total_seconds(), return_type=float),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number"}, {"type": "string"}],
            "description": "Seconds, or text like 90s, 10m, 1h30m, 2d.",
        },
        mode="validation",
    ),
]
"""Accepts both forms, serialises as seconds."""
