"""The OpenAPI document is whole: every route, every reference, the bodies that FastAPI does not know."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.openapi.models import OpenAPI
from fastapi.routing import iter_route_contexts

from api.app import create_app
from api.app_state import AppState
from api.openapi import HOT_BODIES

METHODS = {"get", "put", "patch", "post", "delete"}
OPEN = {"/health", "/ready", "/api/v1/login"}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(cast("AppState", None))


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


@pytest.mark.spec("S000-169")
def test_every_route_is_described(app: FastAPI, document: dict[str, Any]) -> None:
    served = {
        (route.path_format, method.lower())
        for route in iter_route_contexts(app.routes)
        if getattr(route, "include_in_schema", False)  # a WebSocket is no operation
        for method in route.methods or ()
    }
    assert len(served) > 25
    assert served == {(path, method) for path, method, _ in operations(document)}
    for path, method, operation in operations(document):
        assert method in METHODS
        assert operation["description"], f"{method} {path} has no description"


def test_the_document_is_openapi(document: dict[str, Any]) -> None:
    checked = OpenAPI.model_validate(document)
    assert checked.openapi.startswith("3.1")
    assert checked.paths is not None
    assert checked.paths.keys() == document["paths"].keys()


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for reference in references(document):
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in schemas


@pytest.mark.spec("S000-170")
def test_hot_bodies_have_their_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for body in HOT_BODIES:
        assert schemas[body.__name__]["type"] == "object"
    submit = document["paths"]["/api/v1/task-groups/{reference}/tasks"]["post"]
    reference = submit["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert reference == "#/components/schemas/SubmitTasks"
    assert schemas["SubmittedTask"]["additionalProperties"] is False


def test_everything_but_the_open_paths_wants_a_token(document: dict[str, Any]) -> None:
    open_paths = {
        path for path, _, operation in operations(document) if "security" not in operation
    }
    assert open_paths == OPEN
    scheme = document["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def test_operations_have_names_of_their_own_and_problems(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, method, operation in operations(document):
        for status, answer in operation["responses"].items():
            is_problem = "application/problem+json" in answer.get("content", {})
            assert is_problem == (not status.startswith("2")), f"{method} {path} {status}"


def test_refusals_have_their_status(document: dict[str, Any]) -> None:
    """``default`` is left for errors of the product only; random calls look at the others."""
    statuses = {
        f"{method} {path}": {status for status in operation["responses"] if status[0] in "45"}
        for path, method, operation in operations(document)
    }
    assert statuses["get /health"] == {"503"}
    assert statuses["post /api/v1/login"] == {"401", "413", "415", "422", "429", "503"}
    assert statuses["get /api/v1/me"] == {"401", "403", "422", "503", "507"}
    lasting = {"401", "403", "404", "409", "422", "503", "507"}
    assert statuses["get /api/v1/task-groups/{reference}"] == lasting
    submit = statuses["post /api/v1/task-groups/{reference}/tasks"]
    assert submit == {*lasting, "413", "415", "429"}
