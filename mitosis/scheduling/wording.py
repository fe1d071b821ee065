"""Words that the lines for people share: spans of time, lists of names, how a hook ended."""

import math
from collections.abc import Callable, Sequence

from mitosis.contracts.outcome import signal_name

NAMES_SHOWN = 3


def span(seconds: float | None) -> str:
    """Return ``7 s``, ``3 min`` or ``2 h``."""
    if seconds is None:
        return "a while"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


_PARTS = ((1, 1000), (10, 100), (120, 10))


def exact(seconds: float, rounded: Callable[[float], float] = round) -> str:
    """Return a span that is compared with another, as in ``1.5 s`` or ``3 min 20 s``.

    It has thousandths of a second below 1 s, hundredths below 10 s, tenths below two minutes.
    """
    parts = next((parts for below, parts in _PARTS if seconds < below), 1)
    # A product such as 2.3 * 100 is a little above 230.
    left = rounded(round(seconds * parts, 6)) / parts
    if left < 120:
        return f"{left:.3f}".rstrip("0").rstrip(".") + " s"
    minutes, left = divmod(round(left), 60)
    hours, minutes = divmod(minutes, 60) if minutes >= 120 else (0, minutes)
    shown = (f"{count} {unit}" for count, unit in ((hours, "h"), (minutes, "min"), (left, "s")))
    return " ".join(one for one in shown if not one.startswith("0 "))


def compared(value: float, threshold: float) -> tuple[str, str]:
    """Return a span and its threshold, so that the one that is less is shown as less."""
    down, up = (math.floor, math.ceil) if value < threshold else (math.ceil, math.floor)
    return exact(value, down), exact(threshold, up)


def names(all_names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    shown = ", ".join(all_names[:NAMES_SHOWN])
    more = len(all_names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def hook_end(message: str | None, exit_code: int | None, signal: int | None) -> str:
    """Return how a hook ended: its message, or the signal or exit code."""
    if message:
        return message
    if signal:
        return f"killed by {signal_name(signal)}"
    return f"exit code {exit_code}" if exit_code is not None else "no message"
