"""The OpenAPI document: FastAPI's own, plus the msgspec bodies and the problem documents."""

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
    service_tasks.SingleReport,
    service_tasks.SingleReportAnswer,
)
_REF = "#/components/schemas/{name}"
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
        for operation in path.values():
            _complete(operation)
    return document


def _complete(operation: dict[str, Any]) -> None:
    """Add the answers of one operation: the msgspec one if it has one, and problem documents."""
    responses = operation["responses"]
    if answer := operation.pop("x-answer", None):
        success = next(status for status in responses if status.startswith("2"))
        responses[success]["content"] = _json(answer)
    responses.pop("422", None)
    responses["default"] = {
        "description": "An error",
        "content": {"application/problem+json": {"schema": {"$ref": _REF.format(name="Problem")}}},
    }


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=name)}}}
