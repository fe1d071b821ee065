"""The signals that stop a program: which code receives them, and what they cancel."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

Taker = Callable[[signal.Signals], None]


def handled_signals(numbers: Sequence[signal.Signals]) -> list[signal.Signals]:
    """Return the signals to handle: without SIGHUP where it is ignored, as under nohup(1)."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in numbers if not (ignored and number is signal.SIGHUP)]


class StopSignals:
    """Handles SIGINT, SIGTERM and SIGHUP of this process; SIGHUP not where it is ignored (nohup).

    The first signal goes to the caller of :meth:`wait`. Without one it cancels the task that entered the
    context, so that a start, or work on the stack, ends at once and in order. Each later signal cancels
    what that task waits for: the part that is being stopped is killed. Outside of the main thread Python
    delivers no signals. Work with an end of its own takes the signals over with :meth:`given_to`.
    """

    _numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.received = False
        self.on_stop: Callable[[], None] = lambda: None
        """Called for each signal that stops the program."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._waiter: asyncio.Future[signal.Signals] | None = None
        self._taker: Taker | None = None
        self._listening: list[signal.Signals] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._listening = handled_signals(self._numbers)
            for number in self._listening:
                self._loop.add_signal_handler(number, self._handle, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._listening:
            self._loop.remove_signal_handler(number)

    @contextmanager
    def given_to(self, taker: Taker) -> Iterator[None]:
        """Pass every signal to ``taker`` while the context is open, without cancelling anything."""
        self._taker = taker
        try:
            yield
        finally:
            self._taker = None

    async def wait(self) -> signal.Signals:
        self._waiter = self._loop.create_future()
        return await self._waiter

    def _handle(self, number: signal.Signals) -> None:
        if self._taker is not None:
            self._taker(number)
            return
        self.received = True
        self.on_stop()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(number)
        elif self._task is not None:
            self._task.cancel()
