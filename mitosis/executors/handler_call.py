"""The process of the executor ``handler``: calls one function and writes how it ended."""

import importlib
import inspect
import json
import os
import sys
import traceback
from typing import Any

import msgspec

from mitosis.contracts.outcome import FailureKind
from mitosis.worker.report import ResultError, encode_result, ended_by_exit


class HandlerEnd(msgspec.Struct, omit_defaults=True):
    """What the process writes when the function has ended."""

    result: Any = None
    kind: FailureKind | None = None
    message: str | None = None
    traceback: str | None = None
    exit_code: int | None = None


def _called(handler: str, arguments: Any) -> HandlerEnd:
    try:
        result = _result(handler, arguments)
    except SystemExit as error:
        how = ended_by_exit(error, traceback.format_exc())
        return HandlerEnd(None, how.kind, how.message, how.traceback, how.exit_code)
    except BaseException as error:  # noqa: BLE001 - a handler may raise anything
        text = "".join(traceback.format_exception_only(error)).strip()
        return HandlerEnd(None, FailureKind.HANDLER_ERROR, text, traceback.format_exc())
    try:
        encode_result(result)
    except ResultError as error:
        return HandlerEnd(None, FailureKind.RESULT_NOT_STORABLE, str(error))
    return HandlerEnd(result)


def _result(handler: str, arguments: Any) -> Any:
    module, _, path = handler.partition(":")
    function: Any = importlib.import_module(module)
    for name in path.split("."):
        function = getattr(function, name)
    called = function(**arguments) if isinstance(arguments, dict) else function(*(arguments or ()))
    if not inspect.isawaitable(called):
        return called
    import asyncio

    return asyncio.run(_awaited(called))


async def _awaited(called: Any) -> Any:
    return await called


def main() -> None:
    """Call the handler of the first argument; what it prints goes to standard error."""
    result_fd = os.dup(1)
    os.dup2(2, 1)
    document = json.load(sys.stdin)
    end = _called(sys.argv[1], document["spec"].get("arguments"))
    sys.stdout.flush()
    with os.fdopen(result_fd, "wb") as file:
        file.write(msgspec.json.encode(end))


if __name__ == "__main__":
    main()
