"""Waits for the first of several awaitables, for an event with a limit, and for cancelled tasks.

No function here loses a cancellation of the caller. ``asyncio.wait_for`` before
Python 3.12 does not: it returns a result that arrives together with the cancellation.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def race(first: Awaitable[T], *others: Awaitable[object]) -> T | None:
    """Wait until one of these ends; cancel the other coroutines and wait for their end.

    Tasks and futures belong to the caller and are never cancelled. If several end together, the first
    argument wins.

    Returns:
        The result of ``first`` if it wins; otherwise None.

    Raises:
        BaseException: raised by the winner. Errors of the others are dropped.
    """
    leader = asyncio.ensure_future(first)
    rest = [asyncio.ensure_future(other) for other in others]
    given = {id(racer) for racer in (first, *others)}
    try:
        await asyncio.wait([leader, *rest], return_when=asyncio.FIRST_COMPLETED)
        finished = [racer for racer in (leader, *rest) if racer.done()]
    finally:
        await cancel_and_wait(*(racer for racer in (leader, *rest) if id(racer) not in given))
    if finished[0] is leader:
        return leader.result()
    finished[0].result()
    return None


async def finish_all(*tasks: "asyncio.Task[Any]") -> None:
    """Wait until all have ended, or one has failed. Cancels none of them.

    Unlike ``asyncio.gather`` it leaves no exception behind that asyncio logs if it is not waited for.

    Raises:
        BaseException: raised by the first in this order that has failed.
    """
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        if task in done:
            task.result()


async def wait_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most this long; return whether it is set."""
    try:
        return await within(event.wait(), seconds)
    except TimeoutError:
        return event.is_set()  # the event was set while the wait ended


async def within(work: Awaitable[T], seconds: float) -> T:
    """Return the result of ``work`` if it ends in time; otherwise cancel it and wait for its end.

    Unlike ``asyncio.timeout`` before Python 3.11.3, this also works in a task that has been
    cancelled and is cleaning up.

    Raises:
        TimeoutError: ``work`` did not end within ``seconds``.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
    finally:
        await cancel_and_wait(task)
    if not done:
        raise TimeoutError
    return task.result()


async def cancel_and_wait(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel these and wait until all have ended; ignore their exceptions.

    Raises:
        asyncio.CancelledError: the caller was cancelled; raised after the tasks have ended.
    """
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while running:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:  # anyio cancels again in every turn of the loop
            cancelled = error
        running = [task for task in running if not task.done()]
    for task in tasks:
        if not task.cancelled():
            task.exception()  # marks it as seen: asyncio logs errors that are not
    if cancelled is not None:
        raise cancelled


def raise_if_cancelled() -> None:
    """Raise the cancellation of this task again if it was lost; for loops around psycopg.

    psycopg waits with ``asyncio.wait_for``, which can lose a cancellation. A loop that calls this in
    every turn ends anyway.

    Raises:
        asyncio.CancelledError: this task has been cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
