"""Accounts and roles, as the API and the store know them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

Role = Literal["read", "write", "admin"]
RANK: Mapping[Role, int] = {"read": 1, "write": 2, "admin": 3}
"""A role includes those below it."""

STACK_ADMINISTRATOR = "admin"
"""The account that each start of an API needs, and that the commands of its data folder use."""


@dataclass(frozen=True, slots=True)
class User:
    """An account with its role in each of its user groups, by name."""

    user_id: UUID
    username: str
    is_admin: bool
    token_version: int
    groups: Mapping[str, Role]
