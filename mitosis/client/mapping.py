"""Many calls of one function, read no further ahead than asked, their results in either order."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Generic, TypeVar

from mitosis.client.outcome import TaskFailed

A = TypeVar("A")
R = TypeVar("R")

Inputs = Iterable[A] | AsyncIterable[A]
BUFFER_SIZE = 10_000
"""How many inputs are read and submitted before the first of their results must have been taken."""
_BREATHE_EVERY = 200


async def each(inputs: Inputs[A]) -> AsyncIterator[A]:
    """The inputs, whichever kind they are; others get their turn between those of a plain iterable."""
    if isinstance(inputs, AsyncIterable):
        async for item in inputs:
            yield item
        return
    for number, item in enumerate(inputs):
        if number % _BREATHE_EVERY == _BREATHE_EVERY - 1:
            await asyncio.sleep(0)
        yield item


async def mapped(
    submit: Callable[[A], "asyncio.Future[R]"],
    inputs: Inputs[A],
    *,
    ordered: bool,
    return_exceptions: bool,
    buffer_size: int,
) -> AsyncIterator[R | TaskFailed]:
    """The results of ``submit`` for every input, in their order or as they come.

    Raises:
        TaskFailed: of a result, unless these are to be given like results.
        Exception: what reading the inputs has raised, after the results of those before.
    """
    feed = _Feed(submit, ordered, buffer_size)
    feeding = asyncio.create_task(feed.run(inputs))
    try:
        while (future := await feed.ready.get()) is not None:
            try:
                result: R | TaskFailed = await future
            except TaskFailed as failed:
                if not return_exceptions:
                    raise
                result = failed
            feed.room.release()
            yield result
        await feeding
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])


class _Feed(Generic[A, R]):
    """Submits inputs while there is room, and says which future is to be given next."""

    def __init__(
        self, submit: Callable[[A], "asyncio.Future[R]"], ordered: bool, buffer_size: int
    ) -> None:
        self.room = asyncio.Semaphore(buffer_size)
        self.ready: asyncio.Queue[asyncio.Future[R] | None] = asyncio.Queue()
        """None = there are no more."""
        self._submit, self._ordered = submit, ordered
        self._running: set[asyncio.Future[R]] = set()

    async def run(self, inputs: Inputs[A]) -> None:
        try:
            async for item in each(inputs):
                await self.room.acquire()
                self._start(item)
            await self._all_ready()
        except Exception:
            await self._all_ready()
            raise
        finally:
            self.ready.put_nowait(None)

    def _start(self, item: A) -> None:
        future = self._submit(item)
        if self._ordered:
            self.ready.put_nowait(future)
        else:
            self._running.add(future)
            future.add_done_callback(self._done)

    def _done(self, future: "asyncio.Future[R]") -> None:
        self._running.discard(future)
        self.ready.put_nowait(future)

    async def _all_ready(self) -> None:
        while self._running:
            await asyncio.wait(self._running)
