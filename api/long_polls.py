"""Requests that are held until something happens (protocol P7): how each of them can end.

The store waits; here the wait is given up when the client leaves or the server stops, so that no
waiter stays behind and no stop hangs.
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
    """The held requests of one server."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()

    def release(self) -> None:
        """Let every held request answer now, and those to come as well."""
        self._stopping.set()

    async def stopped(self) -> None:
        """Wait until the server stops."""
        await self._stopping.wait()

    async def hold(self, request: Request, answer: Coroutine[Any, Any, T]) -> T:
        """Await ``answer``, which is never None; it is cancelled if the client leaves or the server stops.

        The body of ``request`` has been read.

        Raises:
            ApiUnavailable: the server stops; the call may be made again as it is.
            ClientDisconnect: nobody waits for the answer any more.
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
