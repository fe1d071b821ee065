"""The environment variables that a client may give: one type for every pydantic model that takes some."""

from typing import Annotated

from pydantic import AfterValidator

from mitosis.contracts.task import is_variable


def _usable(environment: dict[str, str]) -> dict[str, str]:
    for name, value in environment.items():
        if not is_variable(name, value):
            raise ValueError(f"{name!r} must be a usable environment variable")
    return environment


Environment = Annotated[dict[str, str], AfterValidator(_usable)]
"""Name to value, as ``execve`` can hand them over. Source: environ(7)."""
