"""When a call of the SDK is made again: only if trying again can help, and no sooner than asked."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import stamina

from mitosis.contracts.errors import MitosisError

T = TypeVar("T")


def backoff(error: Exception) -> bool | float:
    """For stamina: the seconds that the API asked for (``Retry-After``), else its own backoff."""
    if not isinstance(error, MitosisError) or not error.retryable:
        return False
    asked = error.facts.get("retry_after_seconds")
    return float(asked) if isinstance(asked, int | float) and asked > 0 else True


async def repeating(call: Callable[[], Awaitable[T]], give_up_after: timedelta) -> T:
    """Make a call that may be repeated until it is answered or ``give_up_after`` has passed.

    Raises:
        MitosisError: the last error.
    """
    async for attempt in stamina.retry_context(
        on=backoff, attempts=None, timeout=give_up_after, wait_initial=0.1, wait_max=5.0
    ):
        with attempt:
            return await call()
    raise AssertionError("unreachable: the loop ends by an answer or an error")
