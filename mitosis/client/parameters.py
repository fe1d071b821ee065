"""Checks the SDK's parameters that are not fields of a body model.

These are references in paths, durations, local choices and queries. An error names the parameter as the
caller wrote it.
"""

from collections.abc import AsyncIterable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError

from mitosis.client.finding import check_url
from mitosis.client.submitting import Tasks
from mitosis.contracts.checked_model import refused
from mitosis.contracts.checking import shown
from mitosis.contracts.duration import parse_duration
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import MAX_GRACE_SECONDS
from mitosis.contracts.identifiers import Name
from mitosis.contracts.queries import Query
from mitosis.contracts.task import TaskSubmission

M = TypeVar("M", bound=BaseModel)

Group: TypeAlias = UUID | str
"""A task group: its id, ``group/name``, or the plain name within the caller's own user group."""

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_ID: TypeAdapter[UUID] = TypeAdapter(UUID)


def group_reference(group: Group, parameter: str = "group") -> str:
    """Return the path form of a task group; ``group/name`` stays two segments, as names need no escapes.

    Raises:
        InvalidRequest: it is neither an id, a name nor ``USERGROUP/NAME``.
    """
    if isinstance(group, UUID):
        return str(group)
    names = group.split("/") if isinstance(group, str) else []
    try:
        if 1 <= len(names) <= 2:
            return "/".join([_NAME.validate_python(name) for name in names])
    except ValidationError:
        pass
    raise InvalidRequest(
        f"must be the id or the name of a task group, as in render or team/render, not {shown(group)}",
        field=parameter,
    )


def identifier(value: UUID, parameter: str) -> UUID:
    """Return the id of a task or a host.

    Raises:
        InvalidRequest: it is not an id.
    """
    try:
        return _ID.validate_python(value)
    except ValidationError as error:
        raise refused(error, parameter) from None


def duration(
    value: timedelta, parameter: str, *, most: float | None = None, above_zero: bool = False
) -> timedelta:
    """Convert to a duration; seconds and text like ``90s`` are accepted too.

    Args:
        value: the value from the caller.
        parameter: its name for the caller.
        most: the longest that is allowed, in seconds.
        above_zero: 0 is not allowed.

    Raises:
        InvalidRequest: says what would be right.
    """
    try:
        length = parse_duration(value)
    except ValueError as error:
        raise InvalidRequest(str(error), field=parameter) from None
    wrong = None
    if above_zero and length <= timedelta():
        wrong = "must be longer than 0 seconds"
    elif length < timedelta():
        wrong = "must not be negative"
    elif most is not None and length.total_seconds() > most:
        wrong = f"must be at most {most:g} seconds"
    if wrong is not None:
        raise InvalidRequest(f"{wrong}, not {length.total_seconds():g}", field=parameter)
    return length


def grace_seconds(grace: timedelta | None) -> float | None:
    """Return a time from SIGTERM to SIGKILL in seconds.

    Raises:
        InvalidRequest: it is negative or too long.
    """
    if grace is None:
        return None
    return duration(grace, "grace", most=MAX_GRACE_SECONDS).total_seconds()


def choice(value: str, choices: tuple[str, ...], parameter: str) -> None:
    """Check that the value is one of the choices.

    Raises:
        InvalidRequest: it is not; lists them.
    """
    if value not in choices:
        raise InvalidRequest(
            f"must be {', '.join(choices[:-1])} or {choices[-1]}, not {shown(value)}",
            field=parameter,
        )


def model(kind: type[M], value: M | Mapping[str, Any], parameter: str = "") -> M:
    """Return the value as a model; a mapping of its fields is accepted too.

    Raises:
        InvalidRequest: names the field, below ``parameter`` if it is given.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise refused(error, parameter) from None


def query(kind: type[Query], **values: Any) -> dict[str, Any]:
    """Return the parameters of a query, without those that are None.

    Raises:
        InvalidRequest: names the parameter and what would be right.
    """
    given = {name: value for name, value in values.items() if value is not None}
    try:
        made = kind.model_validate(given)
    except ValidationError as error:
        raise refused(error, names={f"{name}[0]": name for name in given}) from None
    return made.model_dump(mode="json", exclude_unset=True)


def check_tasks(tasks: Tasks) -> None:
    """Check that this is an iterable of tasks, not one task.

    Raises:
        InvalidRequest: it is not; says what would be right.
    """
    if isinstance(tasks, TaskSubmission | Mapping):
        wrong = "must be an iterable of tasks; put the one into a list"
    elif isinstance(tasks, str | bytes) or not isinstance(tasks, Iterable | AsyncIterable):
        wrong = f"must be an iterable of tasks, not {shown(tasks)}"
    else:
        return
    raise InvalidRequest(wrong, field="tasks")


def check_connection(url: str, token: str | None) -> None:
    """Check the URL and the token.

    Raises:
        InvalidRequest: names the parameter and what would be right.
    """
    if not isinstance(url, str):
        raise InvalidRequest(
            f"must be text, as in http://127.0.0.1:8000, not {shown(url)}", field="url"
        )
    try:
        check_url(url)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field="url") from None
    if not isinstance(token, str | None):
        raise InvalidRequest("must be a token as text", field="token")
