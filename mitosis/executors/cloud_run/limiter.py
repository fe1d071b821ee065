"""Spreads calls in time, so that a process makes no more than so many a second."""

import asyncio


class Limiter:
    """Lets calls pass at a steady rate, after a first burst. For one event loop."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._interval = 1.0 / per_second
        self._burst_seconds = (burst - 1) * self._interval
        self._next = 0.0
        """When the next call would pass if all came at the steady rate (``loop.time``)."""

    async def wait(self) -> None:
        """Wait until one more call may be made."""
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._burst_seconds)
        passes_at = self._next
        self._next += self._interval
        if passes_at > now:
            await asyncio.sleep(passes_at - now)
