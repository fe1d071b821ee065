"""Words that the lines for people share: spans of time, lists of names, how a hook ended."""

from collections.abc import Sequence

from mitosis.contracts.outcome import signal_name

NAMES_SHOWN = 3


def span(seconds: float | None) -> str:
    """Return ``7 s``, ``3 min`` or ``2 h``."""
    if seconds is None:
        return "a while"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


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
