"""Long polls: look, wait for a wake-up without holding a connection, look again (protocol P7)."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mitosis.concurrency import raise_if_cancelled
from mitosis.store.pg.wake import Waiter

T = TypeVar("T")


async def look_until(
    waiter: Waiter,
    done: Callable[[T], bool],
    look: Callable[[], Awaitable[T]],
    *,
    seconds: float,
    arm: Callable[[], Awaitable[object]] | None = None,
    again: Callable[[T], float | None] = lambda _: None,
) -> T:
    """Look until ``done`` accepts the answer or ``seconds`` have passed; return the last answer.

    The waiter is registered already, so a change between look and wait wakes it. A cancellation that a look
    has lost ends the poll before it waits.

    Args:
        waiter: what wakes the poll, from ``Wake.waiter``.
        done: whether an answer is returned at once.
        look: reads the answer; holds a connection only while it runs.
        seconds: how long to wait at most.
        arm: asks PostgreSQL for a notification, before each look.
        again: the seconds after which an answer may change without a notification, or None.
    """
    deadline = time.monotonic() + seconds
    while True:
        if arm is not None:
            await arm()
        answer = await look()
        left = deadline - time.monotonic()
        if done(answer) or left <= 0:
            return answer
        raise_if_cancelled()
        changes_in = again(answer)
        await waiter.wait(left if changes_in is None else min(left, changes_in))
        if arm is not None:  # look again without requesting a notification
            answer = await look()
            if done(answer):
                return answer
