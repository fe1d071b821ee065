"""Maps a function over inputs, with a bounded read-ahead and ordered or unordered results."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from mitosis.client.background import background
from mitosis.client.outcome import TaskFailed, TaskNotRun
from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.checking import shown
from mitosis.contracts.errors import InvalidRequest

A = TypeVar("A")
R = TypeVar("R")

Inputs = Iterable[A] | AsyncIterable[A]
BUFFER_SIZE = 10_000
"""How many inputs are submitted ahead of the consumed results."""
_BREATHE_EVERY = 200


def check_mapping(inputs: object, buffer_size: object, kinds: tuple[type, ...]) -> None:
    """Check that the inputs are one of these kinds of iterable, and that the buffer size is positive.

    Raises:
        InvalidRequest: names the parameter and what would be right.
    """
    if not isinstance(inputs, kinds):
        other = ", and an async one needs Client" if isinstance(inputs, AsyncIterable) else ""
        raise InvalidRequest(f"must be an iterable{other}, not {shown(inputs)}", field="inputs")
    if not isinstance(buffer_size, int) or buffer_size < 1:
        raise InvalidRequest(f"must be int >= 1, not {shown(buffer_size)}", field="buffer_size")


def arguments_of(item: object) -> tuple[Any, ...]:
    """Return the arguments of one call of a ``starmap``.

    Raises:
        InvalidRequest: the input is not a tuple of arguments.
    """
    if not isinstance(item, Iterable) or isinstance(item, str | bytes | Mapping):
        raise InvalidRequest(
            f"each must be a tuple with the arguments of one call, not {shown(item)}; "
            "map takes one argument per call",
            field="inputs",
        )
    return tuple(item)


async def each(inputs: Inputs[A]) -> AsyncIterator[A]:
    """Iterate over inputs of either kind; a plain iterable yields to the event loop between items."""
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
    on_feeding: Callable[["asyncio.Task[None]"], None] = lambda _: None,
) -> AsyncIterator[R | TaskFailed]:
    """Iterate over the results of ``submit`` for every input, in input order or as they complete.

    ``on_feeding`` gets the asyncio task that reads the inputs; the end of the group cancels it.

    Raises:
        TaskFailed: a task failed, unless failures are returned as results.
        TaskNotRun: the ``with`` block of the group has ended.
        Exception: raised by reading the inputs, after the results of the earlier ones.
    """
    feed = _Feed(submit, ordered, buffer_size)
    feeding = background(feed.run(inputs))
    on_feeding(feeding)
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
        if feeding.cancelled():
            raise TaskNotRun(
                "the with block of the task group ended before all inputs were submitted"
            )
        await feeding
    finally:
        await cancel_and_wait(feeding)


class _Feed(Generic[A, R]):
    """Submits inputs while there is room, and selects the next future to yield."""

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
