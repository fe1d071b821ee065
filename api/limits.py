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

from api.bodies import BODY_LIMIT, check_utf8, decode, read_body
from api.json_text import without_nul

_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class LimitedRoute(APIRoute):
    """A route whose body may have 2 MB. Hot routes read their bodies after the token is checked."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def limited(request: Request) -> Response:
            raw = self.acceptable(await read_body(request, BODY_LIMIT))
            return await handler(Request(request.scope, _replaying(raw, request.receive)))

        return limited

    def acceptable(self, raw: bytes) -> bytes:
        """Return the body in a form that may be decoded.

        Raises:
            InvalidRequest: it is not JSON, or a value in it cannot be stored; names the field.
        """
        check_utf8(raw)
        if raw:
            decode(raw, _ANYTHING)
        return raw


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
