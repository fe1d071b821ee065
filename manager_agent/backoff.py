"""Retries of an agent: it never gives up, unless the API refuses."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from mitosis.contracts.errors import MitosisError
from mitosis.retry_policy import RetryPolicy, always, is_no_refusal, retrying

T = TypeVar("T")
log = logging.getLogger(__name__)

AGENT_POLICY = RetryPolicy(first_seconds=0.05, longest_seconds=5.0, worth=is_no_refusal)
REPORT_POLICY = replace(AGENT_POLICY, worth=always)
"""For reports: they stay here until the API takes them, since a lost result is worse than a late one.
If a refusal is about the agent itself, its next renewal is refused too, and that ends it."""


def is_refusal(error: MitosisError) -> bool:
    """Return whether the API has refused, so that the same call will not succeed."""
    return not AGENT_POLICY.worth(error)


async def until_reached(call: Callable[[], Awaitable[T]]) -> T:
    """Make ``call`` until it succeeds or is refused.

    Raises:
        MitosisError: the refusal.
    """
    return await retrying(call, AGENT_POLICY, on_failure=_log_first)


def _log_first(error: MitosisError, failures: int, pause: float) -> None:
    del pause
    if failures == 0:
        log.warning("api.unreachable", extra={"reason": error.message})
