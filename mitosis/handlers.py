"""``@handler``: marks a Python function that can also run as a task.

Workers find it by name, ``module:function``, so it must be at module level in an importable module.
Standard library, msgspec and contracts only: the modules of a user's handlers import this in every worker.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from mitosis.contracts.checking import checked
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.named_tasks import parse_task_name
from mitosis.contracts.task import (
    Priority,
    Retries,
    RetryDelay,
    RetryPolicy,
    Seconds,
    SubmittedTask,
    check_environment,
    check_working_directory,
)

P = ParamSpec("P")
R = TypeVar("R")


class TaskOptions(TypedDict, total=False):
    """How a call runs as a task; options left out have the defaults of a task."""

    timeout: timedelta | float
    """Longest time that one attempt may take; a number is in seconds."""
    retries: int
    """Number of retries after an exception or a timeout; 0 by default."""
    retry_delay: timedelta | float
    """Pause before the next try, doubled for each further failure."""
    priority: int
    """Higher first, within the group."""
    environment: Mapping[str, str]
    working_directory: str
    """Absolute folder on the host; by default a private, empty one."""
    labels: Sequence[str]


class CheckedOptions(msgspec.Struct, forbid_unknown_fields=True):
    """:class:`TaskOptions` with the bounds of the task's fields; times in seconds."""

    timeout: Seconds | None = None
    retries: Retries = 0
    retry_delay: RetryDelay = 0.0
    priority: Priority = 0
    environment: dict[str, str] = {}
    working_directory: str | None = None
    labels: list[str] = []

    def task(self, handler: str) -> SubmittedTask:
        """Return a task of a handler without arguments; the options have been checked."""
        return SubmittedTask(
            handler=handler,
            timeout_seconds=self.timeout,
            retry=RetryPolicy(max_attempts=1 + self.retries, delay_seconds=self.retry_delay),
            priority=self.priority,
            environment=self.environment,
            working_directory=self.working_directory,
            labels=self.labels,
        )


def checked_options(options: TaskOptions) -> CheckedOptions:
    """Return the options with their defaults, checked.

    Raises:
        InvalidRequest: names the option and what would be right.
    """
    plain = {name: _plain(value) for name, value in options.items()}
    if unknown := sorted(plain.keys() - set(TaskOptions.__annotations__)):
        raise InvalidRequest(
            f"{unknown[0]} is not an option of a task; the options are "
            f"{', '.join(sorted(TaskOptions.__annotations__))}",
            field=unknown[0],
        )
    for name in ("timeout", "retry_delay"):
        if not isinstance(plain.get(name), int | float | None):
            raise InvalidRequest("must be seconds, as a number or a timedelta", field=name)
    made = checked(plain, CheckedOptions)
    check_environment(made.environment, "")
    check_working_directory(made.working_directory, "")
    return made


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return dict(value) if isinstance(value, Mapping) else value


class Handler(Generic[P, R]):
    """A function with the options of its tasks. Calling it calls the function directly."""

    def __init__(
        self, function: Callable[P, R], options: TaskOptions, named_task: str | None = None
    ) -> None:
        """Use :func:`handler`.

        Raises:
            InvalidRequest: workers could not import the function by name, or an option is invalid; says
                what would be right.
        """
        check_findable(function)
        checked_options(options)
        if named_task is not None:
            parse_task_name(named_task, "named_task")
        self.function = function
        self.named_task = named_task
        """The named task that a worker service executes with it, if any."""
        self.task_options = options
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def options(self, **options: Unpack[TaskOptions]) -> "Handler[P, R]":
        """Return a copy with other options: ``group.submit(render.options(priority=5), frame)``."""
        return Handler(self.function, {**self.task_options, **options}, self.named_task)

    def __repr__(self) -> str:
        return f"<handler {self.function.__module__}:{self.function.__qualname__}>"


@overload
def handler(function: Callable[P, R], /) -> Handler[P, R]: ...
@overload
def handler(
    *, named_task: str | None = None, **options: Unpack[TaskOptions]
) -> Callable[[Callable[P, R]], Handler[P, R]]: ...
def handler(
    function: Callable[P, R] | None = None,
    /,
    *,
    named_task: str | None = None,
    **options: Unpack[TaskOptions],
) -> Handler[P, R] | Callable[[Callable[P, R]], Handler[P, R]]:
    """Mark a function as one that runs as a task: ``@handler`` or ``@handler(timeout=60, retries=2)``.

    With ``named_task="images/resize@1.4.0"`` a worker service finds it (`mitosis worker --module`).

    Raises:
        InvalidRequest: workers could not import the function by name; says what to do.
    """
    if function is not None:
        return Handler(function, options, named_task)
    return lambda function: Handler(function, options, named_task)


def check_findable(function: Any) -> None:
    """Check that the name leads to this function: it is defined in a module, or in a class of one.

    Raises:
        InvalidRequest: the name does not; says what to do instead.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if isinstance(function, types.MethodType):
        what = f"{name} is a method of an object, which workers do not have"
    elif not callable(function):
        what = f"{function!r} is not a function"
    elif not isinstance(module, str) or not isinstance(name, str):
        what = f"{function!r} has no name by which workers could find it"
    elif "<lambda>" in name:
        what = "a lambda has no name by which workers could find it"
    elif "<locals>" in name:
        what = f"{name} is defined inside another function, where workers cannot find it"
    else:
        return
    raise InvalidRequest(
        f"{what}; define a function with def at module level, and pass its inputs as arguments",
        field="function",
    )
