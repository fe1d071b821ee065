"""Retries of the SDK: only if a retry can help, and no sooner than the API asks."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from mitosis.contracts.errors import MitosisError, QueueFull
from mitosis.retry_policy import RetryPolicy, retrying

T = TypeVar("T")

SDK_POLICY = RetryPolicy(first_seconds=0.1, longest_seconds=5.0)

_log = logging.getLogger(__name__)


async def repeating(call: Callable[[], Awaitable[T]], give_up_after: timedelta) -> T:
    """Retry a repeatable call until it is answered or ``give_up_after`` has passed.

    A full queue is retried without a limit, because the fleet drains it. Gives up at once when the API asks
    for more time than is left.

    Raises:
        MitosisError: the last error.
    """
    return await retrying(
        call,
        SDK_POLICY,
        give_up_after=give_up_after.total_seconds(),
        waits_out=(QueueFull,),
        on_failure=_log_repetition,
    )


def _log_repetition(error: MitosisError, failures: int, pause: float) -> None:
    facts = {
        "error_code": error.code,
        "detail": error.message,
        "repetition": failures + 1,
        "pause_seconds": round(pause, 3),
    }
    _log.info("call.repeated", extra=facts)
