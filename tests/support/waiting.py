"""Waiting for a condition instead of sleeping: the only place of the tests that sleeps."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")


def _on_timeout(timeout: float, on_timeout: Callable[[], object] | str | None) -> AssertionError:
    story = on_timeout() if callable(on_timeout) else on_timeout
    return AssertionError(
        f"condition not met in {timeout:g} s" + (f": {story}" if story is not None else "")
    )


def wait_until(
    cond: Callable[[], T],
    timeout: float = 30.0,
    on_timeout: Callable[[], object] | str | None = None,
    interval: float = 0.01,
) -> T:
    """Poll ``cond`` until it is truthy and give that value back.

    Args:
        timeout: seconds; ``cond`` is always tried at least once and once more at the end.
        on_timeout: a text, or a function whose result is put in the failure (a dump of state).

    Raises:
        AssertionError: the time is over.
    """
    deadline = time.monotonic() + timeout
    while True:
        over = time.monotonic() >= deadline
        if value := cond():
            return value
        if over:
            raise _on_timeout(timeout, on_timeout)
        time.sleep(interval)


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
    deadline = time.monotonic() + timeout
    while True:
        over = time.monotonic() >= deadline
        answer = cond()
        value: object = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if over:
            raise _on_timeout(timeout, on_timeout)
        await asyncio.sleep(interval)
