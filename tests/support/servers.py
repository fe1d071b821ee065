"""Real servers for the tests: run by the product's own supervisors, on an event loop of their own.

A session's servers must be supervised between and during tests that each have their own event loop,
so they live on a loop in a thread.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread; :meth:`run` hands it a coroutine and waits for the result."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers")

    def __enter__(self) -> "LoopThread":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float = 90.0) -> T:
        return self.spawn(coroutine).result(timeout)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """As :meth:`run`, without waiting."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Call a plain function on the loop, some time soon."""
        self._loop.call_soon_threadsafe(function)
