"""Spans of time that are known only roughly: at least, expected, at most. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

UNCERTAIN = 2.0
"""A single mean may be wrong by this factor, either way."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The mean of several runs, such as those on one host."""

    mean_seconds: float
    runs: int


@dataclass(frozen=True, slots=True)
class Band:
    """A span in seconds."""

    least: float
    expected: float | None
    """None: nothing was measured."""
    most: float
    """``inf``: without a limit."""

    def plus(self, other: "Band") -> "Band":
        """Return the sum of both."""
        expected = None
        if self.expected is not None and other.expected is not None:
            expected = self.expected + other.expected
        return Band(self.least + other.least, expected, self.most + other.most)

    def times(self, least: float, expected: float, most: float) -> "Band":
        """Return the band with each of its values multiplied."""
        middle = None if self.expected is None else self.expected * expected
        return Band(self.least * least, middle, self.most * most if most else 0.0)


AT_ONCE = Band(0.0, 0.0, 0.0)
UNKNOWN = Band(0.0, None, math.inf)


def exactly(seconds: float) -> Band:
    """Return the band of a span that is given."""
    return Band(seconds, seconds, seconds)


def measured_band(means: Sequence[Measured]) -> Band | None:
    """Return the mean of all runs, between the least and the greatest mean; None without any run.

    A single mean says nothing about its spread: half and twice of it are taken.
    """
    known = [mean for mean in means if mean.runs > 0]
    if not known:
        return None
    runs = sum(mean.runs for mean in known)
    expected = sum(mean.mean_seconds * mean.runs for mean in known) / runs
    if len(known) == 1:
        return Band(expected / UNCERTAIN, expected, expected * UNCERTAIN)
    seconds = [mean.mean_seconds for mean in known]
    return Band(min(seconds), expected, max(seconds))
