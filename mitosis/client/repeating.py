"""When a call of the SDK is made again: only if trying again can help, and no sooner than asked."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from mitosis.contracts.errors import MitosisError, QueueFull

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0

_log = logging.getLogger(__name__)


def backoff(error: MitosisError, repetition: int) -> float:
    """Seconds to wait before the call is made again: what the API asked for (``Retry-After``), else
    twice as long each time, and a part of that by chance, so that many clients do not come back at once.

    ``repetition`` counts from 0.
    """
    asked = error.facts.get("retry_after_seconds")
    if isinstance(asked, int | float) and asked > 0:
        return float(asked)
    pause: float = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(repetition, 10))
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret


async def repeating(call: Callable[[], Awaitable[T]], give_up_after: timedelta) -> T:
    """Make a call that may be repeated until it is answered or ``give_up_after`` has passed.

    While a queue is full it waits as long as it takes. Gives up at once when the API asks for more
    time than is left.

    Raises:
        MitosisError: the last error.
    """
    ends = time.monotonic() + give_up_after.total_seconds()
    repetition = 0
    while True:
        try:
            return await call()
        except MitosisError as error:
            pause = backoff(error, repetition)
            comes = time.monotonic() + pause
            if isinstance(error, QueueFull):  # the fleet works on it: waiting is not in vain
                ends = comes + give_up_after.total_seconds()
            if not error.retryable or comes > ends:
                raise
            facts = {
                "error_code": error.code,
                "detail": error.message,
                "pause_seconds": round(pause, 3),
            }
            _log.info("call.repeated", extra=facts)
        repetition += 1
        await asyncio.sleep(pause)
