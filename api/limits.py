"""Checks of the bodies that FastAPI decodes: media type, size, valid JSON, values that can be stored.

The decoder of the hot routes checks them first, so the same text is refused everywhere.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Message, Receive

from api.admission import charge
from api.bodies import BODY_LIMIT, LOGIN_LIMIT, check_utf8, decode, read_body
from api.deps import bearer_token, check_caller
from api.json_text import without_nul
from api.logins import client_address, network_of

_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class LimitedRoute(APIRoute):
    """A route whose body may have 2 MB. No route reads a body before it has checked the token."""

    body_limit = BODY_LIMIT

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def limited(request: Request) -> Response:
            await self.admit(request)
            raw = self.acceptable(await read_body(request, self.body_limit))
            return await handler(Request(request.scope, _replaying(raw, request.receive)))

        return limited

    async def admit(self, request: Request) -> None:
        """Find out whose request it is, before its body is read: FastAPI would read the body first.

        Raises:
            Unauthenticated, Overloaded, InvalidRequest: as for :func:`api.deps.check_caller`.
        """
        await check_caller(request, bearer_token(request))

    def acceptable(self, raw: bytes) -> bytes:
        """Return the body in a form that may be decoded.

        Raises:
            InvalidRequest: it is not JSON, or a value in it cannot be stored; names the field.
        """
        check_utf8(raw)
        if raw:
            decode(raw, _ANYTHING)
        return raw


class LoginRoute(LimitedRoute):
    """A route without a token: its body is small and counts to the network that it comes from."""

    body_limit = LOGIN_LIMIT

    async def admit(self, request: Request) -> None:
        charge(request, ("address", network_of(client_address(request))))


class AgentRoute(LimitedRoute):
    """A :class:`LimitedRoute` that replaces NUL characters (hooks may print them) by U+FFFD."""

    def acceptable(self, raw: bytes) -> bytes:
        return super().acceptable(without_nul(raw))


def _replaying(raw: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that returns the whole body first, and then the messages that follow."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return replay
