"""How long to wait before trying again: exponential with full jitter, Retry-After respected."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mitosis.contracts.errors import MitosisError

FIRST_SECONDS = 0.05
LONGEST_SECONDS = 5.0

T = TypeVar("T")
log = logging.getLogger(__name__)


def delay(
    attempt: int, error: BaseException | None = None, longest: float = LONGEST_SECONDS
) -> float:
    """Seconds to wait after failure number ``attempt`` (0, 1, …).

    A ``retry_after_seconds`` among the error's facts is a lower bound.
    """
    ceiling = min(longest, FIRST_SECONDS * 2 ** min(attempt, 20))
    told = error.facts.get("retry_after_seconds") if isinstance(error, MitosisError) else None
    return max(float(told or 0.0), random.uniform(ceiling / 2, ceiling))  # noqa: S311 - jitter


def hopeless(error: MitosisError) -> bool:
    """Did the API refuse, so that asking again cannot help? Any 5xx is worth another try."""
    return not error.retryable and error.http_status < 500


async def until_reached(call: Callable[[], Awaitable[T]], longest: float = LONGEST_SECONDS) -> T:
    """Repeat ``call`` while it fails in a way that trying again can help; never gives up.

    Raises:
        MitosisError: the first refusal.
    """
    attempt = 0
    while True:
        try:
            return await call()
        except MitosisError as error:
            if hopeless(error):
                raise
            if attempt == 0:
                log.warning("api.unreachable", extra={"reason": error.message})
            await asyncio.sleep(delay(attempt, error, longest))
            attempt += 1
