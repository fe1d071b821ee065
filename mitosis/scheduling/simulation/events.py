"""What is to happen, in the order of its time."""

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import Any

Call = Callable[[Any], None]
Event = tuple[float, int, object, Any]
"""Time, number, and either a lease and the duration of the task that ends, or a function and its argument."""


class Events:
    """A queue by time; what is added first comes first among equals."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queue: list[Event] = []
        self._number = 0

    def at(self, time: float, what: object, argument: Any = None) -> None:
        """Let something happen at a time that is not past."""
        self._number += 1
        heappush(self.queue, (time, self._number, what, argument))

    def after(self, seconds: float, call: Call, argument: Any = None) -> None:
        """Let something happen after some time."""
        self.at(self.now + seconds, call, argument)

    def remove_first(self) -> None:
        """Remove the first event."""
        heappop(self.queue)

    def replace_first(self, time: float, what: object, argument: Any) -> None:
        """Remove the first event, and let something else happen at a time that is not past."""
        self._number += 1
        heapreplace(self.queue, (time, self._number, what, argument))
