"""What the methods of the SDK are given, checked by their annotations before anything is made or sent.

Types and bounds are those of ``mitosis.contracts``. A refusal names the parameter as the caller wrote it.
"""

import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache, wraps
from types import FunctionType
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints
from uuid import UUID

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationError

from mitosis.client.finding import check_url
from mitosis.client.submitting import Tasks
from mitosis.contracts.checked_model import refused
from mitosis.contracts.duration import Duration
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import (
    MAX_NAMED_MANAGERS,
    MAX_WAIT_SECONDS,
    GraceSeconds,
    PositiveDuration,
)
from mitosis.contracts.identifiers import Name
from mitosis.contracts.task import TaskSubmission

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_GRACE: TypeAdapter[float] = TypeAdapter(GraceSeconds)


def _reference(group: object) -> UUID | str:
    """A group by its id, its name, or that of its user group and its own."""
    names = group.split("/") if isinstance(group, str) else []
    try:
        if isinstance(group, UUID):
            return group
        if 1 <= len(names) <= 2:
            return "/".join([_NAME.validate_python(name) for name in names])
    except ValidationError:
        pass
    raise ValueError("must be the id or the name of a task group, as in render or team/render")


def _not_negative(duration: timedelta) -> timedelta:
    if duration < timedelta():
        raise ValueError("must not be negative")
    return duration


def _graceful(duration: timedelta) -> timedelta:
    try:
        _GRACE.validate_python(duration.total_seconds())
    except ValidationError as error:
        what = error.errors()[0]["msg"].replace("Input should be", "must be")
        raise ValueError(f"{what} seconds") from None
    return duration


def _short(duration: timedelta) -> timedelta:
    if duration > timedelta(seconds=MAX_WAIT_SECONDS):
        raise ValueError(f"must be at most {MAX_WAIT_SECONDS:g} seconds")
    return duration


def _many(tasks: object) -> Any:
    if isinstance(tasks, TaskSubmission | Mapping):
        raise ValueError("must be an iterable of tasks; put the one into a list")  # noqa: TRY004 - for pydantic
    if isinstance(tasks, str | bytes) or not isinstance(tasks, Iterable | AsyncIterable):
        raise ValueError("must be an iterable of tasks")  # noqa: TRY004 - for pydantic
    return tasks


def _address(url: object) -> str:
    if not isinstance(url, str):
        raise ValueError("must be text, as in http://127.0.0.1:8000")  # noqa: TRY004 - for pydantic
    try:
        check_url(url)
    except InvalidRequest as error:
        raise ValueError(error.message) from None
    return url


# What runs is not what is promised: durations may also be written as everywhere else, as in "90s".
Reference = Annotated[UUID | str, PlainValidator(_reference)]
Waiting = Annotated[Duration, AfterValidator(_not_negative)]
Grace = Annotated[Duration, AfterValidator(_graceful)]
ShortWaiting = Annotated[Waiting, AfterValidator(_short)]
Lasting = PositiveDuration
ManagerIds = Annotated[Sequence[UUID], Field(min_length=1, max_length=MAX_NAMED_MANAGERS)]
ManyTasks = Annotated[Tasks, PlainValidator(_many)]
Address = Annotated[str, PlainValidator(_address)]


class _Unchecked:
    """Marks what only Python can check, by using it."""


UNCHECKED = _Unchecked()


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function of the SDK whose arguments are checked, and made what the annotations say.

    The function raises then, at once (a coroutine function too):

    Raises:
        InvalidRequest: naming the parameter and what would be right.
    """
    signature = inspect.signature(function)
    adapters = cache(lambda: _adapters(function))

    @wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        for name, adapter in adapters().items():
            if name in bound.arguments:
                bound.arguments[name] = fitted(adapter, bound.arguments[name], name)
        return function(*bound.args, **bound.kwargs)

    return checking


def checked_methods(cls: type[T]) -> type[T]:
    """A class whose constructor and public methods, those to come as well, are :func:`checked`."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, checked(method))
    return cls


def fitted(adapter: TypeAdapter[Any], value: object, name: str) -> Any:
    """The value as a type.

    Raises:
        InvalidRequest: naming the parameter and what would be right.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise refused(error, name) from None


def _adapters(function: Callable[..., Any]) -> dict[str, TypeAdapter[Any]]:
    """Made when first needed, since making them takes a while."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: TypeAdapter(hint)
        for name, hint in hints.items()
        if name != "return" and UNCHECKED not in getattr(hint, "__metadata__", ())
    }
