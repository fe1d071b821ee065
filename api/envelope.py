"""Wraps every request: gives it an id, and answers unexpected errors."""

import asyncio
import logging
import re
import uuid
from collections.abc import Callable
from time import perf_counter
from typing import TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.admission import Admission
from api.errors import internal_error, problem_response
from mitosis.contracts.errors import ApiUnavailable, Overloaded

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
_STOPPING = problem_response(ApiUnavailable("the API is stopping; make the call again"))
"""For a request that still runs when a stop has waited long enough: its task is cancelled."""
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")


ObserveRequest: TypeAlias = Callable[[str, str, int, float], None]
"""Called with method, route, status and seconds of a request that was answered."""


UNMATCHED = "unmatched"
"""The route of requests that no route serves: anyone can invent a path."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD = "other"
"""Every method that is not one of these: anyone can invent one."""


def _not_observed(method: str, route: str, status: int, seconds: float) -> None:
    """Keep nothing."""


class RequestEnvelope:
    """ASGI middleware. A client's request id is kept if it is a plain word."""

    def __init__(
        self,
        app: ASGIApp,
        admission: Admission | None = None,
        observe: ObserveRequest = _not_observed,
    ) -> None:
        self._app = app
        self._admission = admission or Admission()
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        began = perf_counter()
        status = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        answer = await self._run(scope, receive, send_with_id, request_id)
        if answer is not None and status is None:
            await answer(scope, receive, send_with_id)
        if status is not None:
            method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
            self._observe(method, _route(scope), status, perf_counter() - began)

    async def _run(
        self, scope: Scope, receive: Receive, send: Send, request_id: str
    ) -> Response | None:
        """Run the request; return the error to send if it ended without an answer."""
        facts = {"request_id": request_id, "method": scope["method"], "path": scope["path"]}
        try:
            await self._admitted(scope, receive, send)
        except Overloaded as error:
            log.warning("request.refused", extra={**facts, "reason": error.message})
            return problem_response(error)
        except ClientDisconnect:
            log.debug("request.abandoned", extra=facts)
        except asyncio.CancelledError:
            log.warning("request.cut_short", extra=facts)
            return _STOPPING
        except Exception:  # nothing outside can answer, so no exception may escape
            log.exception("request.crashed", extra=facts)
            return internal_error(request_id)
        return None

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request unless the limit of concurrent requests is reached."""
        one = self._admission.begin(scope)
        try:
            await self._app(scope, receive, send)
        finally:
            one.end()


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if _ACCEPTABLE.fullmatch(given) else uuid.uuid4().hex


def _route(scope: Scope) -> str:
    """Return the path of the route below its prefix, with the names of its parameters."""
    return getattr(scope.get("route"), "path_format", UNMATCHED)
