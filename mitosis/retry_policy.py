"""Retries: the length of pauses, the errors worth a retry, and the loop that uses both.

Every loop outside workflows that tries again uses this (docs/adr/0011). Workflows compute their own
pauses: they must replay, so nothing may be random. Wait on a timer of Temporal there.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from mitosis.contracts.errors import MitosisError
from mitosis.fates import Fate, fate

T = TypeVar("T")
Worth = Callable[[MitosisError], bool]
OnFailure = Callable[[MitosisError, int, float], None]
"""Called with the error, the number of failures before it, and the seconds until the next try."""


def is_retryable(error: MitosisError) -> bool:
    """Return whether the same call may succeed soon."""
    return fate(error) is Fate.PASSING


def is_no_refusal(error: MitosisError) -> bool:
    """Return whether the error is anything but a refusal by the API.

    Unlike :func:`is_retryable` this includes internal errors and answers of another server, as of a
    proxy. An agent continues after them, because its end would end the running tasks.
    """
    return "status" in error.facts or fate(error) in (Fate.PASSING, Fate.BROKEN)


def retry_after(error: BaseException | None) -> float:
    """Return the seconds that the API asks its callers to wait (``Retry-After``), or 0."""
    asked = error.facts.get("retry_after_seconds") if isinstance(error, MitosisError) else None
    return float(asked) if isinstance(asked, int | float) and 0 < asked < math.inf else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How one kind of caller tries again.

    Attributes:
        first_seconds: the longest first pause.
        longest_seconds: no pause is longer, unless the API asks for it.
        factor: each pause is this many times the one before.
        jitter: the share of each pause that is random, so that many callers do not return together.
        worth: whether a retry can help after this error.
    """

    first_seconds: float
    longest_seconds: float
    factor: float = 2.0
    jitter: float = 0.5
    worth: Worth = is_retryable

    def pause(self, failures: int, error: BaseException | None = None) -> float:
        """Return the seconds to wait after an error that follows ``failures`` others in a row.

        ``Retry-After`` is a lower bound.
        """
        longest = min(self.longest_seconds, self.first_seconds * self.factor ** min(failures, 64))
        share = random.uniform(1.0 - self.jitter, 1.0) if self.jitter else 1.0  # noqa: S311 - jitter
        return max(longest * share, retry_after(error))


class Backoff:
    """Counts failures in a row and gives the pause after each."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self.failures = 0

    def next_pause(self, error: BaseException | None = None) -> float:
        """Count one failure; return the seconds to wait before the next try."""
        pause = self.policy.pause(self.failures, error)
        self.failures += 1
        return pause

    def reset(self) -> None:
        """Start over after a success."""
        self.failures = 0


async def retrying(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    give_up_after: float = math.inf,
    waits_out: tuple[type[MitosisError], ...] = (),
    on_failure: OnFailure = lambda *_: None,
) -> T:
    """Make a call until it succeeds, its error is not worth a retry, or the time is over.

    Args:
        call: may be made any number of times.
        policy: how to try again.
        give_up_after: seconds. The last error is raised at once if the next try would come later.
        waits_out: errors that start this time again.
        on_failure: called before each pause.

    Raises:
        MitosisError: the last error.
    """
    clock = asyncio.get_running_loop().time
    ends = clock() + give_up_after
    backoff = Backoff(policy)
    while True:
        try:
            return await call()
        except MitosisError as error:
            pause = backoff.next_pause(error)
            comes = clock() + pause
            if isinstance(error, waits_out):
                ends = comes + give_up_after
            if not policy.worth(error) or comes > ends:
                raise
            on_failure(error, backoff.failures - 1, pause)
        await asyncio.sleep(pause)
