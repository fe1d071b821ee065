"""Finds the handlers of a worker service when its process starts, so that a wrong name takes no task."""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mitosis.contracts.errors import InvalidRequest


def find_handlers(
    handlers: Sequence[str], python_path: Sequence[str]
) -> dict[str, Callable[..., Any]]:
    """Return the function of each ``module:function``, imported in this process.

    Raises:
        InvalidRequest: names the handler that is not there, and why.
    """
    sys.path[:0] = [folder for folder in python_path if folder not in sys.path]
    functions: dict[str, Callable[..., Any]] = {}
    for handler in handlers:
        module_name, _, path = handler.partition(":")
        try:
            found: Any = importlib.import_module(module_name)
        except Exception as error:  # noqa: BLE001 - a module of a user may raise anything
            raise InvalidRequest(
                f"cannot import {module_name} of {handler}: {type(error).__name__}: {error}",
                field="task",
            ) from None
        for attribute in path.split("."):
            if not hasattr(found, attribute):
                raise InvalidRequest(f"{module_name} has no {path}", field="task")
            found = getattr(found, attribute)
        if not callable(found):
            raise InvalidRequest(f"{handler} is no function", field="task")
        functions[handler] = found
    return functions
