"""Durations as people write them: a number of seconds, or ``90s``, ``10m``, ``1h30m``, ``2d``."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(value: object) -> timedelta:
    """Seconds as a number, or text like ``1h30m``.

    Raises:
        ValueError: saying what would be right.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    if isinstance(value, str):
        text = value.strip().replace(" ", "")
        if re.fullmatch(r"\d+(?:\.\d+)?", text):
            return timedelta(seconds=float(text))
        if text and _PART.sub("", text) == "":
            return timedelta(seconds=sum(float(n) * _UNITS[u] for n, u in _PART.findall(text)))
    raise ValueError(f"{value!r} is not a duration; write seconds or text like 90s, 10m, 1h30m")


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(lambda value: value.total_seconds(), return_type=float),
]
"""Accepts both forms, serialises as seconds."""
