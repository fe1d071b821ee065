"""Waiting for a condition instead of sleeping: the only place of the tests that sleeps."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")
LONGEST_PAUSE_SECONDS = 0.1


def _on_timeout(timeout: float, on_timeout: Callable[[], object] | str | None) -> AssertionError:
    story = on_timeout() if callable(on_timeout) else on_timeout
    return AssertionError(
        f"condition not met in {timeout:g} s" + (f": {story}" if story is not None else "")
    )


def _pause(began: float, tried: float, interval: float) -> float:
    """Return how long to sleep: some percent of what has been waited, and as long as the try itself took.

    Many conditions ask a database, an API or the list of processes; what is waited for runs beside them.
    """
    now = time.monotonic()
    waited = min((now - began) / 20, LONGEST_PAUSE_SECONDS)
    return max(interval, waited, min(now - tried, LONGEST_PAUSE_SECONDS))


def wait_until(
    cond: Callable[[], T],
    timeout: float = 30.0,
    on_timeout: Callable[[], object] | str | None = None,
    interval: float = 0.01,
) -> T:
    """Poll ``cond`` until it is truthy and give that value back.

    Args:
        timeout: seconds; ``cond`` is always tried at least once and once more at the end.
        interval: the shortest pause between two tries.
        on_timeout: a text, or a function whose result is put in the failure (a dump of state).

    Raises:
        AssertionError: the time is over.
    """
    began = time.monotonic()
    while True:
        over = (tried := time.monotonic()) >= began + timeout
        if value := cond():
            return value
        if over:
            raise _on_timeout(timeout, on_timeout)
        time.sleep(_pause(began, tried, interval))


@overload
async def wait_until_async(
    cond: Callable[[], Awaitable[T]],
    timeout: float = ...,
    on_timeout: Callable[[], object] | str | None = ...,
    interval: float = ...,
) -> T: ...


@overload
async def wait_until_async(
    cond: Callable[[], T],
    timeout: float = ...,
    on_timeout: Callable[[], object] | str | None = ...,
    interval: float = ...,
) -> T: ...


async def wait_until_async(
    cond: Callable[[], object],
    timeout: float = 30.0,
    on_timeout: Callable[[], object] | str | None = None,
    interval: float = 0.01,
) -> object:
    """As :func:`wait_until` for a plain or an async condition; lets the event loop run between."""
    began = time.monotonic()
    while True:
        over = (tried := time.monotonic()) >= began + timeout
        answer = cond()
        value: object = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if over:
            raise _on_timeout(timeout, on_timeout)
        await asyncio.sleep(_pause(began, tried, interval))
