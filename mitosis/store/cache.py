"""A bounded cache in memory whose entries expire."""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """Values by key, each kept for ``seconds``; emptied when it holds ``most``."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._entries: dict[K, tuple[float, V]] = {}
        self._cleared = 0

    def __contains__(self, key: K) -> bool:
        found = self._entries.get(key)
        return found is not None and time.monotonic() - found[0] < self._seconds

    async def get(
        self, key: K, read: Callable[[], Awaitable[V]], keep: Callable[[V], bool] = lambda _: True
    ) -> V:
        """Return the cached value, or read it; cache what was read if ``keep`` accepts it."""
        found = self._entries.get(key)
        now = time.monotonic()
        if found is not None and now - found[0] < self._seconds:
            return found[1]
        cleared = self._cleared
        value = await read()
        # What was read before the cache was cleared may be what it was cleared of.
        if cleared == self._cleared and keep(value):
            self._put(key, value, now)
        return value

    def put(self, key: K, value: V) -> None:
        """Cache a value from now on."""
        self._put(key, value, time.monotonic())

    def clear(self) -> None:
        """Forget every entry, and what is being read at the moment."""
        self._cleared += 1
        self._entries.clear()

    def _put(self, key: K, value: V, at: float) -> None:
        if len(self._entries) >= self._most:
            self._entries.clear()
        self._entries[key] = (at, value)
