"""Errors as problem documents (RFC 9457): one of the three places where the error tree is mapped.

``type`` is ``urn:mitosis:error:<code>``; the facts of an error are members beside the standard ones.
Internal details are not sent: an unexpected exception is logged here and answered with its request id.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.bodies import too_deep
from mitosis.contracts.checked_model import describe_validation_error, path_of_error
from mitosis.contracts.errors import InvalidRequest, MethodNotAllowed, MitosisError, NotFound

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1.0
"""Sent to clients when the error itself names no time."""

_STANDARD = frozenset({"type", "title", "status", "detail", "code"})
_LOCATIONS = frozenset({"body", "query", "path", "header", "cookie"})
_RETRYABLE = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE}
)


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of the routes, of validation and of routing with a problem document."""
    app.add_exception_handler(MitosisError, _on_mitosis_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


def problem_response(error: MitosisError, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer for one error."""
    status = type(error).http_status
    headers = dict(headers or {})
    if status in _RETRYABLE:
        wait = float(error.facts.get("retry_after_seconds", RETRY_AFTER_SECONDS))
        headers["Retry-After"] = str(math.ceil(wait))
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    document = problem_document(type(error).code, status, error.message, error.facts)
    return _response(document, headers)


def problem_document(code: str, status: int, detail: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the members of RFC 9457, section 3.1, our code, and the facts."""
    return {
        "type": f"urn:mitosis:error:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        **{key: value for key, value in facts.items() if key not in _STANDARD},
    }


def internal_error(request_id: str) -> Response:
    """Return the answer for an unexpected error; the log has the details."""
    detail = "this is an error of Mitosis; the log of the API has more under this request id"
    return _response(problem_document("internal", 500, detail, {"request_id": request_id}), {})


def _response(document: dict[str, Any], headers: dict[str, str]) -> Response:
    content = msgspec.json.encode(document, enc_hook=str)
    return Response(content, document["status"], headers, MEDIA_TYPE)


async def _on_mitosis_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MitosisError)  # noqa: S101 - registered for this class only
    state = getattr(request.app.state, "app_state", None)
    error = error if state is None else state.storage.explain(error)
    if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("request.failed", extra={"code": error.code, "detail": error.message})
    return problem_response(error)


async def _on_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class only
    return problem_response(invalid_request(error.errors()))


def invalid_request(problems: Sequence[Any]) -> InvalidRequest:
    """Return pydantic's errors as one error: the first in the message, all of them in the facts."""
    found = [
        {"field": _field(item), "message": describe_validation_error(item, "json")}
        for item in problems
    ]
    first = found[0]
    return InvalidRequest(first["message"], field=first["field"], problems=found)


def _field(item: dict[str, Any]) -> str:
    """Return ``("body", "plan", "cores", 0)`` as ``plan.cores[0]``; the whole body is ``body``."""
    location: Sequence[int | str] = item["loc"]
    if item["type"] == "json_invalid":
        return "body"
    steps = list(location[1:] if len(location) > 1 and location[0] in _LOCATIONS else location)
    return path_of_error(steps)


async def _on_http_exception(_: Request, error: Exception) -> Response:
    """Answer the errors of Starlette and FastAPI: unknown paths and methods, bodies nested too deeply."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    found: MitosisError
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            found = NotFound("there is no such path")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            found = MethodNotAllowed()
        case _:
            found = too_deep()
    return problem_response(found, headers=error.headers)
