"""Ctrl-C in three steps: detach, cancel, stop waiting. The first one never stops tasks.

Signals arrive as events of the loop; their meaning depends on their number and their distance.
"""

import asyncio
import signal
from contextlib import ExitStack
from enum import Enum
from typing import Literal

from mitosis.concurrency import wait_event
from mitosis.embedded.stop_signals import StopSignals, handled_signals

OnInterrupt = Literal["detach", "cancel"]
SECOND_CHANCE_SECONDS = 2.0


class StopRequest(Enum):
    """What the user asks for."""

    DETACH = "detach"
    CANCEL = "cancel"
    LEAVE = "leave"
    """Cancelled already: stop waiting for the end."""


class Interrupts:
    """Receives signals while the context is open."""

    def __init__(self, on_interrupt: OnInterrupt, own_stack: StopSignals | None = None) -> None:
        """``own_stack``: receives the signals for a stack that ends with this run, which cannot detach."""
        self._first = (
            StopRequest.CANCEL if on_interrupt == "cancel" or own_stack else StopRequest.DETACH
        )
        self._hung_up = StopRequest.CANCEL if own_stack else StopRequest.DETACH
        self._own_stack = own_stack
        self._exits = ExitStack()
        self._asked, self._more = asyncio.Event(), asyncio.Event()
        self.request: StopRequest | None = None
        self.second_chance = True
        """A second Ctrl-C may follow."""
        self.reason = "Ctrl-C"
        """The reason to store with a cancelled group."""

    def receive(self, number: signal.Signals) -> None:
        """Handle a signal."""
        before = self.request
        self.reason = "Ctrl-C" if number is signal.SIGINT else number.name
        match number:
            case signal.SIGINT:
                self.interrupt()
            case signal.SIGHUP:
                self.hang_up()
            case _:
                self.terminate()
        if self.request is not before:
            self._more.set()

    def interrupt(self) -> None:
        """Advance by one step, for Ctrl-C."""
        next_step = {
            None: self._first,
            StopRequest.DETACH: StopRequest.CANCEL,
            StopRequest.CANCEL: StopRequest.LEAVE,
        }
        self.request = next_step.get(self.request, StopRequest.LEAVE)
        self._asked.set()

    def lose_output(self) -> None:
        """Stop as for SIGTERM, because the output of tasks cannot be written."""
        self.reason = "its output could not be written"
        self.terminate()

    def terminate(self) -> None:
        """Advance as for Ctrl-C, without waiting for a second one (SIGTERM)."""
        self.request = self.request or self._first
        self.second_chance = False
        self._asked.set()

    def hang_up(self) -> None:
        """Detach, or cancel if the stack ends with this run (SIGHUP)."""
        self.request = self.request or self._hung_up
        self.second_chance = False
        self._asked.set()

    async def asked(self) -> None:
        """Wait for the next signal."""
        await self._asked.wait()
        self._asked.clear()

    async def asked_for_more(self) -> None:
        """Wait until more is asked for than now: a closed terminal, say, sends the same signal twice.

        :meth:`asked` still returns for a signal that repeats what was asked for.
        """
        self._more.clear()
        await self._more.wait()

    async def again_soon(self) -> bool:
        """Return whether another signal comes within two seconds."""
        if not self.second_chance:
            return False
        if not await wait_event(self._asked, SECOND_CHANCE_SECONDS):
            return False
        self._asked.clear()
        return True

    def __enter__(self) -> "Interrupts":
        if self._own_stack is not None:
            self._exits.enter_context(self._own_stack.given_to(self.receive))
            return self
        loop = asyncio.get_running_loop()
        for number in handled_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
            loop.add_signal_handler(number, self.receive, number)
            self._exits.callback(loop.remove_signal_handler, number)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
