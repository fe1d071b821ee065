"""Ends long polls (protocol P7) when the client disconnects, the token ends or the server stops.

The store waits for the event. Without this module, waiters would leak and a stop would hang.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from api.auth import invalid_token
from api.held_calls import HeldCalls
from mitosis.concurrency import race
from mitosis.contracts.errors import ApiUnavailable

T = TypeVar("T")


class LongPolls:
    """The long polls of one server."""

    def __init__(self) -> None:
        self.held = HeldCalls()

    def release(self) -> None:
        """Make every long poll answer now, including later ones."""
        self.held.release()

    async def hold(self, request: Request, answer: Coroutine[Any, Any, T]) -> T:
        """Await ``answer``, which is never None; cancel it if the client, the token or the server goes.

        The body of ``request`` must have been read.

        Raises:
            ApiUnavailable: the server stops; the call may be repeated.
            Unauthenticated: the token was revoked, or the role of the user has changed.
            ClientDisconnect: the client has disconnected.
        """
        with self.held.holding(request, expires=False) as call:
            answered = await race(answer, call.ended.wait(), _until_left(request))
            if answered is not None:
                return answered
            if self.held.stopping:
                raise ApiUnavailable("the API is stopping; make the call again")
            if call.revoked:
                raise invalid_token()
            raise ClientDisconnect


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
