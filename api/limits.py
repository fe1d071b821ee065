"""The size limit of every body that FastAPI decodes, enforced before it reads it."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Message, Receive

from api.bodies import BODY_LIMIT, read_body

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class LimitedRoute(APIRoute):
    """A route whose body may have 2 MB. Hot routes read theirs by themselves, after the token."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def limited(request: Request) -> Response:
            raw = await read_body(request, BODY_LIMIT)
            return await handler(Request(request.scope, _replaying(raw, request.receive)))

        return limited


def _replaying(raw: bytes, receive: Receive) -> Receive:
    """A receive that gives the body at once, and then whatever comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return replay
