"""Ends long polls (protocol P7) when the client disconnects or the server stops.

The store waits for the event. Without this module, waiters would leak and a stop would hang.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from mitosis.concurrency import race
from mitosis.contracts.errors import ApiUnavailable

T = TypeVar("T")


class LongPolls:
    """The long polls of one server."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()

    def release(self) -> None:
        """Make every long poll answer now, including later ones."""
        self._stopping.set()

    async def stopped(self) -> None:
        """Wait until the server stops."""
        await self._stopping.wait()

    async def hold(self, request: Request, answer: Coroutine[Any, Any, T]) -> T:
        """Await ``answer``, which is never None; cancel it if the client disconnects or the server stops.

        The body of ``request`` must have been read.

        Raises:
            ApiUnavailable: the server stops; the call may be repeated.
            ClientDisconnect: the client has disconnected.
        """
        answered = await race(answer, self._stopping.wait(), _until_left(request))
        if answered is not None:
            return answered
        if self._stopping.is_set():
            raise ApiUnavailable("the API is stopping; make the call again")
        raise ClientDisconnect


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
