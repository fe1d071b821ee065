"""Limits open event streams, and ends them when the server stops.

A stream reads its source only as fast as the client reads, so a slow client costs a slot and no memory. An
error ends the stream; the client reconnects after the last id.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import HTTPConnection

from api.long_polls import LongPolls
from api.shares import Holder, Share
from mitosis.concurrency import race
from mitosis.contracts.errors import MitosisError, Unavailable

T = TypeVar("T")

MAX_STREAMS = 400
"""Open streams of one API process; one user alone gets half. Each has a waiter in memory."""

log = logging.getLogger(__name__)


class Streams:
    """The open streams of one server."""

    def __init__(self, long_polls: LongPolls, most: int = MAX_STREAMS) -> None:
        self._long_polls = long_polls
        self.shares = Share(most)
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def place(self, holder: Holder) -> Iterator[None]:
        """Count one stream to the share of ``holder`` while the context is open.

        Raises:
            Unavailable: it has too many beside those of others.
        """
        if not self.shares.take(holder):
            raise Unavailable(
                f"the API has {self.shares.used} open streams, {self.shares.held(holder)} of them yours,"
                " and takes no more of you; try again later",
                retry_after_seconds=5,
            )
        try:
            yield
        finally:
            self.shares.give_back(holder)

    async def until_stopped(
        self, connection: HTTPConnection, source: AsyncGenerator[T]
    ) -> AsyncIterator[T]:
        """Yield the items of ``source`` until it ends or raises a MitosisError.

        It also ends when the server stops, the token was revoked or has expired, or the role has changed.
        """
        with self._long_polls.held.holding(connection, expires=True) as call:
            stopped = asyncio.create_task(call.ended.wait())
            try:
                while (item := await race(_next(source), stopped)) is not None:
                    yield item
                if call.revoked:
                    log.info("stream.ended", extra={"reason": "its token is not valid for it now"})
            except MitosisError as error:
                log.info("stream.ended", extra={"code": error.code, "reason": error.message})
            finally:
                # Run in a separate task, because anyio cancels this one again at every await.
                stopped.cancel()
                closing = asyncio.create_task(source.aclose())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
                await asyncio.shield(closing)


async def _next(source: AsyncIterator[T]) -> T | None:
    """Return the next item, or None at the end: a task cannot raise StopAsyncIteration."""
    return await anext(source, None)
