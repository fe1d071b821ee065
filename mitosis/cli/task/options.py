"""Converts the options about tasks that `run` and `group submit` share into checked fields of a task.

The bounds come from the contract (:class:`SubmittedTask`), so a value that the API would refuse is
refused here first, under the name of its option.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from mitosis.contracts.errors import InvalidRequest, MitosisError
from mitosis.contracts.task import (
    RetryPolicy,
    SubmittedTask,
    encode_submission,
    submission,
)

OPTION_OF_FIELD = {
    "priority": "--priority",
    "dedup_key": "--dedup-key",
    "environment": "--env",
    "working_directory": "--cwd",
    "timeout_seconds": "--timeout",
    "kill_grace_seconds": "--kill-grace",
    "retry": "--retries",
    "handler": "--handler",
    "named_task": "--named-task",
    "require_worker": "--require-worker",
    "arguments": "--arguments",
    "command": "COMMAND",
    "labels": "--label",
    "depends_on": "--after",
}
"""Field of a task -> option."""
_ANY = ("true",)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a numeric field of a contract."""

    least: float
    most: float
    above_least: bool
    """``least`` itself is refused."""

    def hold(self, value: float) -> bool:
        return (self.least < value if self.above_least else self.least <= value) and (
            value <= self.most
        )

    def text(self) -> str:
        if self.above_least:
            return f"more than {self.least:g} and at most {self.most:.15g}"
        return f"{self.least:.15g} to {self.most:.15g}"


def bounds_of(struct: type[msgspec.Struct]) -> dict[str, Bounds]:
    """Return the bounds of every numeric field that has bounds."""
    fields = msgspec.structs.fields(struct)
    found = {field.name: _bounds(inspect.type_info(field.type)) for field in fields}
    return {name: bounds for name, bounds in found.items() if bounds is not None}


def _bounds(kind: inspect.Type) -> Bounds | None:
    for one in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        if isinstance(one, inspect.IntType | inspect.FloatType) and one.le is not None:
            least = one.ge if one.gt is None else one.gt
            return Bounds(float(least or 0), float(one.le), above_least=one.gt is not None)
    return None


def checked_fields(**fields: Any) -> dict[str, Any]:
    """Return the fields of :class:`SubmittedTask` that are not None, each checked.

    Raises:
        InvalidRequest, TooLarge: names the option and what would be right.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    bounds = bounds_of(SubmittedTask)
    for name, value in given.items():
        if name in bounds and not bounds[name].hold(value):
            unit = " seconds" if name.endswith("_seconds") else ""
            raise InvalidRequest(
                f"must be {bounds[name].text()}{unit}, not {value:.15g}",
                field=name,
                option=OPTION_OF_FIELD[name],
            )
    for name, value in given.items():
        checked_task({"command": list(_ANY), name: value}, "", OPTION_OF_FIELD[name])
    return given


def checked_task(fields: Mapping[str, Any], where: str, option: str | None = None) -> msgspec.Raw:
    """Return the encoded task of these fields, checked as the API does.

    ``where`` is the prefix of an error message, as in ``line 3 of FILE: ``.

    Raises:
        InvalidRequest, TooLarge: names the option of the field, or ``option`` if no field is wrong.
    """
    from mitosis.cli.validation import option_of

    try:
        return msgspec.Raw(encode_submission(submission(fields), ""))
    except MitosisError as error:
        field = str(error.facts.pop("field", "")).lstrip(".")
        raise type(error)(
            where + error.message,
            **error.facts,
            field=field or None,
            option=option_of(field, OPTION_OF_FIELD) or option,
        ) from None


def retry_policy(retries: int | None) -> RetryPolicy | None:
    """Convert ``--retries N`` into a policy of N + 1 attempts.

    Raises:
        InvalidRequest: the number is out of bounds.
    """
    if retries is None:
        return None
    attempts = bounds_of(RetryPolicy)["max_attempts"]
    if not attempts.hold(retries + 1):
        most = f"{attempts.most - 1:g}"
        raise InvalidRequest(f"must be 0 to {most}, not {retries}", option="--retries")
    return RetryPolicy(max_attempts=retries + 1)


def variables(pairs: Iterable[str], here: Mapping[str, str]) -> dict[str, str] | None:
    """Parse ``NAME=VALUE`` pairs; None without any. NAME alone takes its value from ``here``.

    Raises:
        InvalidRequest: a pair has no name or no value, or is not UTF-8.
    """
    environment: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name:
            raise InvalidRequest(f"{pair!r} must be NAME=VALUE", option="--env")
        found = value if equals else here.get(name)
        if found is None:
            raise InvalidRequest(f"{name} is not set here; write {name}=VALUE", option="--env")
        _check_text(name, found)
        environment[name] = found
    return environment or None


def _check_text(name: str, value: str) -> None:
    """Check that a variable is UTF-8 text, since it is sent as JSON; commands can have any bytes."""
    for what, text in (("the name", name), ("its value", value)):
        try:
            text.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(name).decode(errors="backslashreplace")
            raise InvalidRequest(
                f"{shown}: {what} is not UTF-8 text, which a variable must be",
                option="--env",
                hint="a command can have any bytes: pass them as an input, or in a file",
            ) from None
