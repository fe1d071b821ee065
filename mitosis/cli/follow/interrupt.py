"""Ctrl-C in three steps: detach, cancel, stop waiting. The first one never harms.

Signals arrive here as events of the loop; what they mean depends on how often and how soon.
"""

import asyncio
import signal
from contextlib import ExitStack
from enum import Enum
from typing import Literal

from mitosis.concurrency import wait_event
from mitosis.embedded.stop_signals import StopSignals, heard_signals

OnInterrupt = Literal["detach", "cancel"]
SECOND_CHANCE_SECONDS = 2.0


class Wish(Enum):
    DETACH = "detach"
    CANCEL = "cancel"
    LEAVE = "leave"
    """Cancelled already; do not wait for the end."""


class Interrupts:
    """Listens while the context is open."""

    def __init__(self, on_interrupt: OnInterrupt, own_stack: StopSignals | None = None) -> None:
        """``own_stack``: hears the signals for a stack that ends with this run; no detaching then."""
        self._first = Wish.CANCEL if on_interrupt == "cancel" or own_stack else Wish.DETACH
        self._hung_up = Wish.CANCEL if own_stack else Wish.DETACH
        self._own_stack = own_stack
        self._exits = ExitStack()
        self._asked = asyncio.Event()
        self.wish: Wish | None = None
        self.second_chance = True
        """Somebody is there who may press Ctrl-C again."""
        self.reason = "Ctrl-C"
        """What the group is told when it is cancelled."""

    def hear(self, number: signal.Signals) -> None:
        """One more signal."""
        self.reason = "Ctrl-C" if number is signal.SIGINT else number.name
        match number:
            case signal.SIGINT:
                self.interrupt()
            case signal.SIGHUP:
                self.hang_up()
            case _:
                self.terminate()

    def interrupt(self) -> None:
        """One more Ctrl-C."""
        following = {None: self._first, Wish.DETACH: Wish.CANCEL, Wish.CANCEL: Wish.LEAVE}
        self.wish = following.get(self.wish, Wish.LEAVE)
        self._asked.set()

    def lose_output(self) -> None:
        """Nobody can have what the tasks print: as SIGTERM."""
        self.reason = "its output could not be written"
        self.terminate()

    def terminate(self) -> None:
        """SIGTERM: as one Ctrl-C, but there is no second chance to wait for."""
        self.wish = self.wish or self._first
        self.second_chance = False
        self._asked.set()

    def hang_up(self) -> None:
        """The terminal is gone: detach, if the stack stays."""
        self.wish = self.wish or self._hung_up
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
        if not await wait_event(self._asked, SECOND_CHANCE_SECONDS):
            return False
        self._asked.clear()
        return True

    def __enter__(self) -> "Interrupts":
        if self._own_stack is not None:
            self._exits.enter_context(self._own_stack.given_to(self.hear))
            return self
        loop = asyncio.get_running_loop()
        for number in heard_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
            loop.add_signal_handler(number, self.hear, number)
            self._exits.callback(loop.remove_signal_handler, number)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
