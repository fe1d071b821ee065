"""Requests that are held until something happens (protocol P7): how each of them can end.

The store waits; here the wait is given up when the client leaves or the server stops, so that no
waiter stays behind and no stop hangs.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

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
        """Await ``answer``; it is cancelled if the client leaves or the server stops.

        The body of ``request`` has been read.

        Raises:
            ApiUnavailable: the server stops; the call may be made again as it is.
            ClientDisconnect: nobody waits for the answer any more.
        """
        answering = asyncio.create_task(answer)
        stopping = asyncio.create_task(self._stopping.wait())
        leaving = asyncio.create_task(_until_left(request))
        tasks = (answering, stopping, leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            if stopping.done():
                raise ApiUnavailable("the API is stopping; make the call again")
            raise ClientDisconnect
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
