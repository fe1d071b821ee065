"""Python functions as tasks: names, options, calls, and typed results."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Signature, signature
from typing import Any, get_type_hints

import msgspec

from mitosis.client.arguments import json_arguments
from mitosis.client.outcome import result_of
from mitosis.client.program import main_as_module
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.task import SubmittedTask
from mitosis.handlers import Handler, TaskOptions, check_findable, checked_options

NOT_GIVEN: Any = object()


@dataclass(frozen=True, slots=True)
class RemoteFunction:
    """A function that workers can import, with the options of its tasks."""

    name: str
    """``module:function``, as workers import it."""
    folder: str | None
    """Folder of the script that defines it; must be on the workers' search path."""
    signature: Signature | None
    returns: Any
    """The annotation of its result; NOT_GIVEN without one."""
    template: SubmittedTask
    """A task of the function without arguments."""

    def task(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> msgspec.Raw:
        """Return the JSON of a task that calls the function.

        Raises:
            InvalidRequest: the call does not fit, or JSON cannot carry an argument.
        """
        carried = json_arguments(self.name, self.signature, args, kwargs)
        task = msgspec.structs.replace(self.template, arguments=carried)
        return msgspec.Raw(msgspec.json.encode(task))

    def result(self, task: TaskInfo) -> Any:
        """Return the result in the annotated type: JSON arrays become tuples, keys become ints.

        Raises:
            TaskFailed: the task did not succeed.
        """
        value = result_of(task)
        if self.returns is NOT_GIVEN:
            return value
        try:
            return msgspec.convert(value, self.returns, str_keys=True)
        except (msgspec.ValidationError, TypeError):
            return value  # it returned something else, or msgspec does not know such types


def remote_function(
    function: Callable[..., Any], search_path: tuple[str, ...] | None, options: TaskOptions
) -> RemoteFunction:
    """Check that workers can import ``function``; ``options`` override those of its ``@handler``.

    Args:
        function: a module-level function, or a :class:`~mitosis.handlers.Handler`.
        search_path: ``python_path`` of the group's workers.
        options: see :class:`~mitosis.handlers.TaskOptions`.

    Raises:
        InvalidRequest: workers could not import it, or an option is unknown; says what to do.
    """
    given = options
    if isinstance(function, Handler):
        given = {**function.task_options, **options}
        function = function.function
    check_findable(function)
    module, folder = _module_of(function, search_path)
    name = f"{module}:{function.__qualname__}"
    return RemoteFunction(
        name, folder, _signature(function), _returns(function), checked_options(given).task(name)
    )


def _module_of(
    function: Callable[..., Any], search_path: tuple[str, ...] | None
) -> tuple[str, str | None]:
    name = function.__qualname__
    if function.__module__ != "__main__":
        _check_found(function, name)
        return function.__module__, None
    found = main_as_module(name)
    if found.folder is not None and search_path is not None and found.folder not in search_path:
        raise InvalidRequest(
            f"{name} is defined in {found.folder}/{found.module}.py, but the workers of this group do "
            f"not look there; create the group with python_path={[found.folder]!r}",
            field="function",
        )
    return found.module, found.folder


def _check_found(function: Callable[..., Any], name: str) -> None:
    """Check that the name leads to this function, bare or as a handler."""
    found: Any = sys.modules.get(function.__module__)
    for part in name.split("."):
        found = getattr(found, part, None)
    if (found.function if isinstance(found, Handler) else found) is not function:
        raise InvalidRequest(
            f"{function.__module__}:{name} is not the function that was given but {found!r}; "
            "use @handler as its outermost decorator",
            field="function",
        )


def _signature(function: Callable[..., Any]) -> Signature | None:
    try:
        return signature(function)
    except (TypeError, ValueError):  # some builtins
        return None


def _returns(function: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(function).get("return", NOT_GIVEN)
    except Exception:  # noqa: BLE001 - annotations may be anything; without them JSON stays as it is
        return NOT_GIVEN
