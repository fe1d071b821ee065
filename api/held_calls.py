"""The calls that go on for long: long polls and streams. They end when the server stops or their token does.

Every :data:`LOOK_SECONDS` one statement finds the calls whose token was revoked, or whose user has lost the
role with which the call began. A token that expires ends its streams; a long poll ends soon by itself.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.requests import HTTPConnection

from api.auth import LEEWAY, Subject
from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.accounts import Role
from mitosis.contracts.errors import Unavailable
from mitosis.store.store import Store
from mitosis.store.users.tokens import HeldToken, no_longer_valid

LOOK_SECONDS = 2.0

log = logging.getLogger(__name__)


class HeldCall:
    """One call that is held. ``ended`` is set when it must end."""

    __slots__ = ("ended", "expires_at", "revoked", "token")

    def __init__(self, connection: HTTPConnection, *, expires: bool) -> None:
        """Read from the connection what authentication and permissions have found, if they have run."""
        self.ended = asyncio.Event()
        self.revoked = False
        """Its token is no longer valid, or not for this."""
        subject: Subject | None = getattr(connection.state, "subject", None)
        self.expires_at = subject.expires_at if subject is not None and expires else math.inf
        role: Role | None = getattr(connection.state, "role", None)
        group = getattr(connection.state, "task_group_id", None)
        self.token = None
        if subject is not None:
            self.token = HeldToken(subject.kind, subject.id, subject.token_version, group, role)

    def revoke(self) -> None:
        self.revoked = True
        self.ended.set()


class HeldCalls:
    """The held calls of one server."""

    def __init__(self) -> None:
        self._calls: set[HeldCall] = set()
        self.stopping = False

    def release(self) -> None:
        """Make every held call end now, including later ones."""
        self.stopping = True
        for call in self._calls:
            call.ended.set()

    @contextmanager
    def holding(self, connection: HTTPConnection, *, expires: bool) -> Iterator[HeldCall]:
        """Count a call as held while the context is open; with ``expires`` it ends with its token."""
        call = HeldCall(connection, expires=expires)
        if self.stopping:
            call.ended.set()
        self._calls.add(call)
        try:
            yield call
        finally:
            self._calls.discard(call)

    @asynccontextmanager
    async def checking_tokens(self, store: Store) -> AsyncIterator[None]:
        """Revoke calls whose token ends, while the context is open."""
        checking = asyncio.create_task(self._check_for_ever(store), name="held tokens")
        try:
            yield
        finally:
            await cancel_and_wait(checking)

    async def _check_for_ever(self, store: Store) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.check_tokens(store)
            except Unavailable as error:
                log.warning("held_tokens.unchecked", extra={"reason": error.message})
            except Exception:  # the next look may work; without any, no token is ever checked again
                log.exception("held_tokens.unchecked")

    async def check_tokens(self, store: Store) -> None:
        """Revoke the calls whose token is no longer valid.

        Raises:
            DatabaseUnavailable: they go on; without the database they cannot do anything.
        """
        expired_before = time.time() - LEEWAY.total_seconds()
        held: list[tuple[HeldCall, HeldToken]] = []
        for call in self._calls:
            if call.expires_at < expired_before:
                call.revoke()
            elif call.token is not None:
                held.append((call, call.token))
        if not held:
            return
        for place in await no_longer_valid(store, [token for _, token in held]):
            held[place][0].revoke()
