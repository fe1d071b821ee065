"""The OpenAPI document: FastAPI's own, plus the msgspec bodies and the problem documents."""

from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from mitosis.contracts import service_tasks, wire
from mitosis.version import __version__

HOT_BODIES = (
    wire.SubmitTasks,
    wire.ReadOutput,
    wire.SubmitAnswer,
    wire.ReadOutput,
    wire.ReadOutputAnswer,
    wire.ClaimTasks,
    wire.ClaimAnswer,
    wire.ReportTasks,
    wire.ReportAnswer,
    wire.TaskReportAnswer,
    wire.Renewal,
    wire.RenewalAnswer,
    wire.Followed,
    wire.FollowedAnswer,
    wire.WriteOutput,
    wire.WriteOutputAnswer,
    service_tasks.ClaimNamedTasks,
    service_tasks.ClaimNamedTasksAnswer,
    service_tasks.ReportNamedTasks,
    service_tasks.ReportNamedTasksAnswer,
    service_tasks.RecordProgress,
    service_tasks.RecordProgressAnswer,
    service_tasks.SingleReport,
    service_tasks.SingleReportAnswer,
)
_REF = "#/components/schemas/{name}"
_REFUSALS = {
    401: "There is no token, or it is invalid, has expired or was revoked",
    403: "The token is of another kind of caller, or the role is too small",
    404: "What the call names does not exist, or the caller may not see it",
    409: "The state of what the call names does not allow it",
    413: "The body, or what it asks for, is too large",
    415: "The body is not said to be JSON",
    422: "A parameter or the body is invalid; `field` names it",
    429: "Too many tasks are unfinished, or too many logins failed; come again after `Retry-After`",
    503: "The API, PostgreSQL or Temporal does not answer; come again after `Retry-After`",
    507: "The disk of the database is full; come again after `Retry-After`",
}
_PROBLEM = {
    "type": "object",
    "description": "RFC 9457; the facts of the error stand beside these members.",
    "properties": {
        "type": {"type": "string", "examples": ["urn:mitosis:error:invalid_request"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "Stable; what programs should look at."},
        "field": {"type": "string", "description": "Path of the offending value, if one is."},
    },
    "required": ["type", "title", "status", "detail", "code"],
}


def hot_route(body: type[msgspec.Struct], answer: type[msgspec.Struct]) -> dict[str, Any]:
    """Return ``openapi_extra`` for a route that decodes ``body`` and encodes ``answer`` itself."""
    return {
        "requestBody": {"required": True, "content": _json(body.__name__)},
        "x-answer": answer.__name__,
    }


def hot_answer(answer: type[msgspec.Struct]) -> dict[str, Any]:
    """Return ``openapi_extra`` for a route without a body that encodes ``answer`` itself."""
    return {"x-answer": answer.__name__}


def install_openapi(app: FastAPI) -> None:
    """Make ``app.openapi()`` return the whole document, built on the first call."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = openapi_document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of all routes of ``app``."""
    document = get_openapi(
        title=app.title, version=__version__, description=app.description, routes=app.routes
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _, hot = msgspec.json.schema_components(HOT_BODIES, ref_template=_REF)
    schemas.update(hot)
    schemas["Problem"] = _PROBLEM
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path in document["paths"].values():
        for method, operation in path.items():
            _complete(method, operation)
    return document


def _complete(method: str, operation: dict[str, Any]) -> None:
    """Add the answers of one operation: the msgspec one if it has one, and problem documents."""
    responses = operation["responses"]
    if answer := operation.pop("x-answer", None):
        success = next(status for status in responses if status.startswith("2"))
        responses[success]["content"] = _json(answer)
    responses.pop("422", None)
    for status in sorted(set(_refusals(method, operation))):
        responses[str(status)] = _problem(_REFUSALS[status])
    responses["default"] = _problem("An error of Mitosis")


def _refusals(method: str, operation: dict[str, Any]) -> Iterator[int]:
    """Yield the status of each kind of refusal that the operation may be answered with."""
    yield 503
    body = "requestBody" in operation
    if body:
        yield from (413, 415, 422)
    if body and method == "post":
        yield 429
    if "security" not in operation:
        if body:
            yield 401
        return
    yield from (401, 403, 422, 507)
    if body or method != "get" or operation.get("parameters"):
        yield from (404, 409)


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Problem")}
    return {
        "description": description,
        "content": {"application/problem+json": {"schema": schema}},
    }


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=name)}}}
