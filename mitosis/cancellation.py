"""Makes sure that a cancelled loop ends.

``asyncio.wait_for`` before Python 3.12, with which psycopg waits, returns a result that arrives in the same
moment as a cancellation and forgets the cancellation: a loop would go on, and nobody cancels it twice.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


def raise_if_cancelled() -> None:
    """Call once in every turn of a loop that waits for PostgreSQL.

    Raises:
        asyncio.CancelledError: this task has been told to end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def within(awaitable: Awaitable[T], seconds: float) -> T:
    """Its result, if there is one in this time; otherwise it is cancelled, as it is when the caller is.

    Unlike ``asyncio.wait_for`` it never forgets a cancellation, and unlike ``asyncio.timeout`` before
    Python 3.11.3 it also works in a task that has been cancelled and is ending in order.

    Raises:
        TimeoutError: not within ``seconds``.
    """
    work = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait([work], timeout=seconds)
    finally:
        work.cancel()
    if not done:
        raise TimeoutError
    return work.result()
