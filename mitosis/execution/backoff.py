"""Retries of an agent: it never gives up, unless the API refuses."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mitosis.contracts.errors import MitosisError
from mitosis.fates import Fate, fate
from mitosis.retry_policy import RetryPolicy, is_no_refusal, retrying

T = TypeVar("T")
log = logging.getLogger(__name__)

AGENT_POLICY = RetryPolicy(first_seconds=0.05, longest_seconds=5.0, worth=is_no_refusal)
REPORT_POLICY = RetryPolicy(first_seconds=0.05, longest_seconds=5.0)
"""For reports while the API is away: they stay here, since a lost result is worse than a late one."""
REFUSED_POLICY = RetryPolicy(first_seconds=1.0, longest_seconds=60.0)
"""For reports while the API, or a server in its place, refuses every report."""
POSTPONED_POLICY = RetryPolicy(first_seconds=1.0, longest_seconds=300.0)
"""For one report that the API cannot take while it takes others."""
POSTPONED_TRIES = 20
"""So often, within an hour or more, it is sent while its error may pass, before its task ends without it."""
REFUSED_TRIES = 2
"""So often it is sent while the API refuses it."""
FOREIGN_REFUSED_TRIES = 5
"""So often, within 15 s, while another server refuses it, as a proxy between two settings."""


def tries(error: MitosisError) -> int:
    """Return how often a report is sent that ends with this error each time."""
    if fate(error) is not Fate.CALL_REFUSED:
        return POSTPONED_TRIES
    return FOREIGN_REFUSED_TRIES if "status" in error.facts else REFUSED_TRIES


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
