"""What surrounds every request: its id, and an answer also for errors that nobody expected."""

import asyncio
import logging
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import internal_error, problem_response
from mitosis.contracts.errors import ApiUnavailable

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
_STOPPING = problem_response(ApiUnavailable("the API is stopping; make the call again"))
"""For a request that still runs when a stop has waited long enough: its task is cancelled."""
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestEnvelope:
    """ASGI middleware. A request id that the client sends is kept if it is a plain word."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        started = False
        answer: Response | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            log.debug("request.abandoned", extra={"request_id": request_id})
        except asyncio.CancelledError:
            log.warning("request.cut_short", extra={"request_id": request_id})
            answer = _STOPPING
        except Exception:  # the last place that can answer; whatever it is must not leave
            log.exception(
                "request.crashed",
                extra={"request_id": request_id, "method": scope["method"], "path": scope["path"]},
            )
            answer = internal_error(request_id)
        if answer is not None and not started:
            await answer(scope, receive, send_with_id)


def _request_id(scope: Scope) -> str:
    told = Headers(scope=scope).get(REQUEST_ID, "")
    return told if _ACCEPTABLE.fullmatch(told) else uuid.uuid4().hex
