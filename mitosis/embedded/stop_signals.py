"""The signals that stop a program: who gets them, and what they cancel."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

Taker = Callable[[signal.Signals], None]


def heard_signals(numbers: Sequence[signal.Signals]) -> list[signal.Signals]:
    """Those of them that are to be heard: SIGHUP not where it is ignored, as under nohup(1)."""
    deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in numbers if not (deaf and number is signal.SIGHUP)]


class StopSignals:
    """Hears every SIGINT, SIGTERM and SIGHUP of this process; the last not where it is ignored (nohup).

    Who waits for the first gets it; otherwise the task that entered the context is cancelled, so that
    a start, or work on the stack, ends at once and in order. Each later one cancels what that task
    waits for: the part that is being stopped is killed. Outside of the main thread, where Python
    delivers no signals, nothing is ever heard. Work that has an end of its own takes them over with
    :meth:`given_to`.
    """

    _numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.heard = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._waiter: asyncio.Future[signal.Signals] | None = None
        self._taker: Taker | None = None
        self._listening: list[signal.Signals] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._listening = heard_signals(self._numbers)
            for number in self._listening:
                self._loop.add_signal_handler(number, self._hear, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._listening:
            self._loop.remove_signal_handler(number)

    @contextmanager
    def given_to(self, taker: Taker) -> Iterator[None]:
        """While the context is open ``taker`` gets every signal, and nothing is cancelled."""
        self._taker = taker
        try:
            yield
        finally:
            self._taker = None

    async def wait(self) -> signal.Signals:
        self._waiter = self._loop.create_future()
        return await self._waiter

    def _hear(self, number: signal.Signals) -> None:
        if self._taker is not None:
            self._taker(number)
            return
        self.heard = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(number)
        elif self._task is not None:
            self._task.cancel()
