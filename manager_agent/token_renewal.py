"""Renews the token of this host while it works, long before it expires (S000-156).

The new token is on disk before it is used. The earlier one stays valid, so no call on its way is refused.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from manager_agent.registration import Credentials, TokenFacts, facts_of, keep_credentials
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.http import Token
from mitosis.execution.backoff import is_refusal
from mitosis.fates import Fate, fate

RENEW_AFTER = 1 / 3
"""Part of its lifetime after which a token is renewed: an API may be away for the rest."""
LOOK_SECONDS = 600.0
"""The longest wait between two looks at the clock, which may be set."""
AGAIN_SECONDS = 60.0
"""After a failure, unless the token expires sooner."""

log = logging.getLogger(__name__)


class TokenRenewal:
    """The token of one host."""

    def __init__(
        self,
        credentials: Credentials,
        state_dir: Path,
        renew: Callable[[timedelta], Awaitable[Token]],
        use: Callable[[str], None],
        *,
        now: Callable[[], float] = time.time,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Renew nothing before :meth:`run`.

        Args:
            credentials: with the present token.
            state_dir: where they are kept.
            renew: asks the API for a token with this lifetime.
            use: called with each new token; calls send it from then on.
            now: returns the time in seconds since the epoch.
            pause: waits for seconds.
        """
        self._credentials, self._state_dir = credentials, state_dir
        self._renew, self._use = renew, use
        self._now, self._pause = now, pause

    async def run_for_ever(self) -> None:
        """Run; a token that cannot be renewed is no reason to end."""
        await self.run()
        await asyncio.Event().wait()

    async def run(self) -> None:
        """Renew for ever. A token that no facts can be read from is never renewed.

        Raises:
            MitosisError: the API refuses this agent (401).
        """
        while (facts := facts_of(self._credentials.token)) is not None:
            wait = due_at(facts) - self._now()
            if wait > 0:
                await self._pause(min(wait, LOOK_SECONDS))
                continue
            try:
                await self._renew_once(facts)
                await self._pause(AGAIN_SECONDS)  # the clock here may be ahead of that of the API
            except MitosisError as error:
                if is_refusal(error) and fate(error) is not Fate.CALL_REFUSED:
                    raise
                log.warning("token.not_renewed", extra={"reason": error.message})
                left = facts.exp - self._now()
                await self._pause(max(1.0, min(AGAIN_SECONDS, left / 10)))
            except OSError as error:  # a full disk; the earlier token stays valid
                log.warning("token.not_renewed", extra={"reason": str(error)})
                await self._pause(AGAIN_SECONDS)

    async def _renew_once(self, facts: TokenFacts) -> None:
        token = await self._renew(timedelta(seconds=facts.exp - facts.iat))
        credentials = Credentials(self._credentials.manager_id, token.token)
        keep_credentials(self._state_dir, credentials)
        self._credentials = credentials
        self._use(token.token)
        log.info("token.renewed", extra={"expires_at": token.expires_at.isoformat()})


def due_at(facts: TokenFacts) -> float:
    """Return the time at which a token is renewed, in seconds since the epoch."""
    return facts.iat + (facts.exp - facts.iat) * RENEW_AFTER
