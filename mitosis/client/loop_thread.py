"""An event loop in its own thread, for programs without one, or with a busy one (notebooks)."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, TypeVar

from mitosis.client.connection import CLOSED
from mitosis.contracts.errors import MitosisError

T = TypeVar("T")

_CHUNK = 1000
_CHUNK_SECONDS = 0.05
_LEAVE_SECONDS = 15.0
"""Longer than a task group needs to be cancelled."""
_LOOK_SECONDS = 0.5


class LoopThread:
    """Runs coroutines for synchronous code in any other thread. Ends with the program."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="mitosis-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine. Ctrl-C cancels it, and is raised when it has ended.

        Raises:
            RuntimeError: called from within the loop, which would wait for itself.
            MitosisError: the loop has been closed.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a SyncClient cannot be used inside its own event loop")
        if self.loop.is_closed():
            work.close()
            raise MitosisError(CLOSED)
        running = _Running(self.loop, work)
        try:
            running.start()
            return running.result()
        except BaseException:
            running.stop()
            raise

    def run_fed(
        self, items: Iterable[T], use: Callable[[AsyncIterator[T]], Coroutine[Any, Any, Any]]
    ) -> Any:
        """Return the result of ``use(items)``; the items are read in the calling thread.

        So a generator of items may block, or use this client.
        """
        asked: queue.SimpleQueue[asyncio.Future[list[T]] | None] = queue.SimpleQueue()

        async def fed() -> AsyncIterator[T]:
            while chunk := await self._ask(asked):
                for item in chunk:
                    yield item

        running = _Running(self.loop, use(fed()), lambda: asked.put(None))
        iterator = iter(items)
        try:
            running.start()
            while (wanted := _next(asked)) is not None:
                self._answer(wanted, iterator)
            return running.result()
        except BaseException:
            running.stop()
            raise

    def soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call this in the loop, without waiting for it.

        Raises:
            MitosisError: the loop has been closed.
        """
        if self.loop.is_closed():
            raise MitosisError(CLOSED)
        self.loop.call_soon_threadsafe(call, *arguments)

    def close(self) -> None:
        """Stop the loop. No coroutine may run in it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_LEAVE_SECONDS)

    def _serve(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    async def _ask(self, asked: "queue.SimpleQueue[asyncio.Future[list[T]] | None]") -> list[T]:
        wanted: asyncio.Future[list[T]] = self.loop.create_future()
        asked.put(wanted)
        return await wanted

    def _answer(self, wanted: "asyncio.Future[list[T]]", iterator: Iterator[T]) -> None:
        try:
            chunk = _chunk(iterator)
        except Exception as error:  # noqa: BLE001 - the reader of the items gets it
            self.loop.call_soon_threadsafe(_set, wanted.set_exception, wanted, error)
        else:
            self.loop.call_soon_threadsafe(_set, wanted.set_result, wanted, chunk)


class _Running(Generic[T]):
    """A coroutine in another thread's loop. It is done only when the coroutine has ended.

    Ctrl-C may come at any moment. In a lock that Python code takes (a condition, an event, a
    ``concurrent.futures.Future``) it can leave the lock taken, and the loop would wait for ever. So the
    waiting thread touches only one queue, which is written in C.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T],
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._loop, self._work, self._at_end = loop, work, at_end
        self._task: asyncio.Task[T] | None = None
        self._over = False
        self._end: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the coroutine. Not done by the constructor, so that :meth:`stop` can always be called."""
        self._loop.call_soon_threadsafe(self._start)

    def result(self) -> T:
        """Wait for the coroutine; return its result or raise its exception."""
        if not self._over:
            _next(self._end)
        if self._task is None or self._task.cancelled():
            raise asyncio.CancelledError
        return self._task.result()

    def stop(self) -> None:
        """Cancel the coroutine if it still runs, and wait for its end, at most 15 s."""
        if not self._over:
            self._loop.call_soon_threadsafe(self._cancel)
            with contextlib.suppress(queue.Empty):
                self._end.get(timeout=_LEAVE_SECONDS)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._ended)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self._over:  # it has not started and never will
            self._work.close()
            self._ended()

    def _ended(self, task: asyncio.Task[T] | None = None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # marks it as seen: asyncio logs errors that are not
        self._over = True
        self._end.put(None)
        self._at_end()


def _set(how: Callable[[Any], None], future: "asyncio.Future[Any]", what: Any) -> None:
    if not future.done():
        how(what)


def _chunk(items: Iterator[T]) -> list[T]:
    """Return the items that come within 0.05 s, at most 1,000 and at least one; none at the end."""
    chunk: list[T] = []
    ends = time.monotonic() + _CHUNK_SECONDS
    for item in items:
        chunk.append(item)
        if len(chunk) == _CHUNK or time.monotonic() > ends:
            break
    return chunk


def _next(items: "queue.SimpleQueue[T]") -> T:
    """Wait for one item. The wait is cut in pieces, so that Ctrl-C just before it is noticed soon."""
    while True:
        with contextlib.suppress(queue.Empty):
            return items.get(timeout=_LOOK_SECONDS)
