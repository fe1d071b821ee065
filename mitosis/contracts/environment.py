"""Environment variables given by clients, as one type for pydantic models."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from mitosis.contracts.task import is_variable


def _name(name: str) -> str:
    if not is_variable(name, ""):
        raise ValueError(
            "must be the name of an environment variable: not empty, without = and NUL"
        )
    return name


def _value(value: str) -> str:
    if not is_variable("NAME", value):
        raise ValueError("must not contain a NUL character")
    return value


Environment = dict[Annotated[str, AfterValidator(_name)], Annotated[str, AfterValidator(_value)]]
"""Name to value, as ``execve`` accepts them. Source: environ(7). An error has the name in its path."""

ShownEnvironment = Mapping[str, str | None]
"""Name to value; the value is null for users whose role is only read."""
