"""Write docs/reference/http.md from the OpenAPI document of the API; ``--check`` only compares."""

import ast
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from api.app import create_app  # noqa: E402 - after the path
from api.app_state import AppState  # noqa: E402
from mitosis.contracts import allocation, hook, http, lifecycle, task, wire  # noqa: E402
from tools.pages import markdown, run_generator, table  # noqa: E402

PAGE = ROOT / "docs/reference/http.md"
HEAD = """\
# HTTP API

Generated from the routes in `api/routes` and the bodies in `mitosis/contracts` by `make docs`; do not edit.
A running API serves the same as OpenAPI at `/openapi.json`, with the statuses of refusals of each route.

Send `Authorization: Bearer <token>`, and a body as JSON with `Content-Type: application/json` (or
`application/…+json`; anything else, or no type at all, is refused with 415 `unsupported_media_type`).
A token is an EdDSA-signed JWT of a user (`POST /api/v1/login`, or the admin's in the data folder) or of a
manager (`POST /api/v1/managers`). Errors are problem documents (RFC 9457), see [errors](errors.md). A list
answers `{"items": […], "next": …}`; pass `next` as `after` to get the following page of the same list.

A task group in a path is its id, `group/name`, or the plain name in the caller's own user group, so no new
group may be named like a UUID. Answers may get new fields; requests with an unknown field are refused. A body
is taken as it is written, here as in the SDK: where a number is wanted, `"2"` and `true` are refused. In a
path or a query numbers are text. Numbers of seconds are `…_seconds`; durations may also be written as
`90s`, `10m` or `1h30m`.

A body may have 2 MB, a submission or a batch of reports 64 MB, one task 1 MB. Every answer has an
`X-Request-Id`; a client may send its own. Only what is no HTTP request gets neither: 400 as text.
"""
MODULES: tuple[ModuleType, ...] = (http, wire, task, allocation, hook, lifecycle)
NOT_SHOWN = ("Page_", "Problem")


def page() -> str:
    """The whole document."""
    document = create_app(cast("AppState", None)).openapi()
    schemas = document["components"]["schemas"]
    shown = [name for name in sorted(schemas) if not name.startswith(NOT_SHOWN)]
    return "\n".join(
        [
            HEAD,
            *_operations(document),
            "## Bodies\n",
            *(_body(name, schemas[name]) for name in shown),
        ]
    )


def _operations(document: dict[str, Any]) -> Iterator[str]:
    by_tag: defaultdict[str, list[str]] = defaultdict(list)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            by_tag[operation["tags"][0]].append(_operation(method, path, operation))
    for tag, parts in by_tag.items():
        yield f"## {tag.capitalize()}\n"
        yield from parts


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    about = operation["description"].replace("``", "`")
    lines = [f"### `{method.upper()} {path}`\n", f"{about}\n"]
    if "security" not in operation:
        lines.append("Needs no token.\n")
    query = [item for item in operation.get("parameters", ()) if item["in"] == "query"]
    if query:
        rows = [(f"`{item['name']}`", _type(item["schema"])) for item in query]
        lines.append(table(("Query", "Type"), rows))
    if body := operation.get("requestBody"):
        lines.append(f"Body: {_content(body)}\n")
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            lines.append(f"Answer {status}: {_content(answer)}\n")
    return "\n".join(lines)


def _content(holder: dict[str, Any]) -> str:
    content = holder.get("content", {}).get("application/json")
    return _type(content["schema"]) if content else "empty"


def _body(name: str, schema: dict[str, Any]) -> str:
    about = markdown(schema.get("description"))
    lines = [f"### {name}\n", *([f"{about}\n"] if about else [])]
    if "enum" in schema:
        lines.append(f"One of {', '.join(f'`{value}`' for value in schema['enum'])}.\n")
    if fields := schema.get("properties"):
        texts = _field_texts(name)
        required = schema.get("required", ())
        rows = [
            (f"`{field}`", _type(about), _default(field, about, required), texts.get(field, ""))
            for field, about in fields.items()
        ]
        lines.append(table(("Field", "Type", "Default", ""), rows))
    return "\n".join(lines)


def _default(field: str, schema: dict[str, Any], required: list[str]) -> str:
    if field in required:
        return "required"
    return f"`{schema['default']}`" if "default" in schema else ""


def _type(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words, named bodies as links."""
    if reference := schema.get("$ref"):
        return _link(reference.rpartition("/")[2])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(item) for item in schema[several]))
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values:
        return ", ".join(f"`{value}`" for value in values)
    return _plain_type(schema)


def _plain_type(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return f"{schema.get('format', kind)}{_bounds(schema)}"


def _bounds(schema: dict[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    large = 2**53
    given = [
        f"{sign} {schema[key]:g}" for key, sign in words.items() if schema.get(key, large) < large
    ]
    return f" {', '.join(given)}" if given else ""


def _link(name: str) -> str:
    if name.startswith("Page_"):
        return f"page of {_link(name.removeprefix('Page_').strip('_'))}"
    return f"[{name}](#{name.lower()})"


def _field_texts(name: str) -> dict[str, str]:
    """Field -> the docstring below it, of the class with this name and of those it extends."""
    found = next((getattr(module, name) for module in MODULES if hasattr(module, name)), None)
    texts: dict[str, str] = {}
    for cls in reversed(inspect.getmro(found) if inspect.isclass(found) else ()):
        if cls.__module__.startswith("mitosis."):
            texts |= _texts_of(cls)
    return texts


def _texts_of(cls: type[Any]) -> dict[str, str]:
    (body,) = ast.parse(inspect.getsource(cls)).body
    texts: dict[str, str] = {}
    for one, after in pairwise(getattr(body, "body", ())):
        match one, after:
            case (
                ast.AnnAssign(target=ast.Name(id=field)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[field] = markdown(text)
    return texts


if __name__ == "__main__":
    raise SystemExit(run_generator(PAGE, page()))
