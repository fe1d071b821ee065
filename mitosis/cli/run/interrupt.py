"""Ctrl-C in three steps: detach, cancel, stop waiting. The first one never harms.

Signals arrive here as events of the loop; what they mean depends on how often and how soon.
"""

import asyncio
import signal
from enum import Enum
from typing import Literal

OnInterrupt = Literal["detach", "cancel"]
SECOND_CHANCE_SECONDS = 2.0


class Wish(Enum):
    DETACH = "detach"
    CANCEL = "cancel"
    LEAVE = "leave"
    """Cancelled already; do not wait for the end."""


class Interrupts:
    """Listens while the context is open."""

    def __init__(self, on_interrupt: OnInterrupt) -> None:
        self._first = Wish.CANCEL if on_interrupt == "cancel" else Wish.DETACH
        self._asked = asyncio.Event()
        self.wish: Wish | None = None
        self.second_chance = True
        """Somebody is there who may press Ctrl-C again."""

    def interrupt(self) -> None:
        """One more Ctrl-C."""
        following = {None: self._first, Wish.DETACH: Wish.CANCEL, Wish.CANCEL: Wish.LEAVE}
        self.wish = following.get(self.wish, Wish.LEAVE)
        self._asked.set()

    def terminate(self) -> None:
        """SIGTERM: as one Ctrl-C, but there is no second chance to wait for."""
        self.wish = self.wish or self._first
        self.second_chance = False
        self._asked.set()

    def hang_up(self) -> None:
        """The terminal is gone: detach."""
        self.wish = self.wish or Wish.DETACH
        self.second_chance = False
        self._asked.set()

    async def asked(self) -> None:
        """Wait for the next signal."""
        await self._asked.wait()
        self._asked.clear()

    async def again_soon(self) -> bool:
        """Whether another signal comes within two seconds."""
        if not self.second_chance:
            return False
        try:
            async with asyncio.timeout(SECOND_CHANCE_SECONDS):
                await self.asked()
        except TimeoutError:
            return False
        return True

    def __enter__(self) -> "Interrupts":
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        loop.add_signal_handler(signal.SIGTERM, self.terminate)
        loop.add_signal_handler(signal.SIGHUP, self.hang_up)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
