"""Things with a time, in the order of their times: what is due is the front of a list."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf, nextafter
from typing import Generic, TypeVar

T = TypeVar("T")
ROUNDING_SECONDS = 1e-6
"""Times this close count as equal: a decision at its own wake time must find what is due."""


class DueTimes(Generic[T]):
    """Items by time. An item may be there several times, with different times."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, T]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DueTimes) and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> "DueTimes[T]":
        """Return the same items, to be changed independently."""
        copied = DueTimes[T]()
        copied._entries = self._entries.copy()
        return copied

    def add(self, at: float, item: T) -> None:
        """Add an item; items of equal times must be comparable."""
        insort(self._entries, (at, item))

    def remove(self, at: float, item: T) -> None:
        """Remove an item that was added with this time."""
        del self._entries[bisect_left(self._entries, (at, item))]

    def due(self, now: float) -> Iterator[tuple[float, T]]:
        """Yield the items whose time has come, earliest first."""
        return iter(self._entries[: self.count_due(now)])

    def later(self, now: float) -> Iterator[tuple[float, T]]:
        """Yield the items whose time is still to come, earliest first."""
        for place in range(self.count_due(now), len(self._entries)):
            yield self._entries[place]

    def count_due(self, now: float) -> int:
        """Return how many items are due."""
        # A tuple of the time alone sorts before all entries of that time.
        return bisect_left(self._entries, (nextafter(now + ROUNDING_SECONDS, inf),))
