"""A function whose body is one call with its own parameters needs a reason; else callers make the call."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.support.sources import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
CODE = ("mitosis", "api", "manager_agent", "activities", "workflows")

REASONS = {
    "activities/host.py:HostActivities.*": "Temporal registers activities as methods of a class",
    "workflows/heartbeat.py:*.intercept_activity": "the hook that Temporal calls",
    "workflows/run.py:RunWorkflow.message_refused": "the interceptor calls it",
    "mitosis/client/http_link.py:HttpLink.on_body": "the hook that httptools calls",
    "mitosis/store/control/control_store.py:ControlStore.discard": "implements a port, as the others",
    "mitosis/executors/command.py:Local*.*": "implements the contract of executors, as others do",
    "mitosis/executors/contract.py:ExecutionContext.checkpoint": "what executors see of where it goes",
    "mitosis/worker_service/executor_thread.py:_Watch.checkpoint": "beside progress, which it reads",
    "mitosis/handlers.py:Handler.__call__": "makes the object callable",
    "mitosis/contracts/errors.py:InvalidRequest.__init__": "gives the fact `field` a type",
    "api/deps.py:get_app_state": "FastAPI runs a dependency that is not async in a thread",
    "mitosis/cli/rendering.py:TerminalOutput._print": "overrides how TextOutput prints",
    "mitosis/scheduling/facts.py:fact": "a decorator that mypy reads",
    "mitosis/store/pg/rows.py:_JsonOfStatements.load": "the hook that psycopg calls",
    "mitosis/execution/session.py:Session._controlled": "the callback that the reactor's actions share",
}
"""Functions, as ``path:qualified.name`` with wildcards, and why they stay."""


def the_call(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Call | None:
    """The one call that a body consists of, its docstring aside."""
    body = [
        one
        for one in function.body
        if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    ]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return None
    value = body[0].value
    value = value.value if isinstance(value, ast.Await) else value
    return value if isinstance(value, ast.Call) else None


def only_passes_on(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    call, has = the_call(function), function.args
    if call is None:
        return False
    parameters = [
        one.arg
        for one in (*has.posonlyargs, *has.args, *has.kwonlyargs, has.vararg, has.kwarg)
        if one is not None and one.arg not in ("self", "cls")
    ]
    given = [
        ast.unparse(one).lstrip("*") for one in (*call.args, *(key.value for key in call.keywords))
    ]
    return bool(parameters) and sorted(parameters) == sorted(given)


def pass_through(node: ast.AST, name: str = "") -> Iterator[str]:
    """Qualified names of the functions below ``node`` that only pass on."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if only_passes_on(child):
                yield name + child.name
            yield from pass_through(child, f"{name}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from pass_through(child, f"{name}{child.name}.")
        else:
            yield from pass_through(child, name)


def found() -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{name}"
        for package in CODE
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in pass_through(parsed(path))
    ]


def test_every_function_that_only_passes_on_has_a_reason() -> None:
    rest = [one for one in found() if not any(fnmatch(one, pattern) for pattern in REASONS)]
    assert not rest, f"make the call where these are called, or give a reason: {rest}"


def test_no_reason_outlives_its_function() -> None:
    names = found()
    unused = [pattern for pattern in REASONS if not any(fnmatch(name, pattern) for name in names)]
    assert not unused, unused
