"""Bodies and queries of the calls about accounts and about who has valid tokens."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self, TypeAlias
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from mitosis.contracts.accounts import Role
from mitosis.contracts.checked_model import Flag
from mitosis.contracts.http import AnswerBody, PositiveDuration, RequestBody
from mitosis.contracts.lifetimes import TOKEN_LIFETIME
from mitosis.contracts.queries import Query

USERNAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
Username = Annotated[str, StringConstraints(pattern=f"^{USERNAME}$")]
NewPassword = Annotated[str, StringConstraints(min_length=8, max_length=1000)]
HolderKind: TypeAlias = Literal["user", "manager", "worker"]


class NewUser(RequestBody):
    username: Username
    password: NewPassword | None = Field(default=None, repr=False)
    """None: the user cannot log in until an administrator sets one."""
    is_admin: Flag = False
    """An administrator has every role everywhere."""
    groups: Mapping[str, Role] = {}
    """Roles in existing user groups, beside the user's own group of the same name."""


class ChangePassword(RequestBody):
    password: NewPassword = Field(repr=False)
    current_password: Annotated[str, StringConstraints(max_length=1000)] | None = Field(
        default=None, repr=False
    )
    """Needed by all but administrators."""


class UserInfo(AnswerBody):
    user_id: UUID
    username: str
    is_admin: bool
    state: Literal["active", "locked"]
    groups: dict[str, Role]
    created_at: datetime


class UsersQuery(Query):
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class TokensQuery(Query):
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class TokenHolder(AnswerBody):
    """A user, host or worker service that has valid tokens. The tokens themselves are not stored."""

    kind: HolderKind
    id: UUID
    name: str
    token_version: int
    valid_until: datetime | None = None
    """End of the token that is valid longest; None: not known, issued by an earlier version."""


class RevokeTokens(RequestBody):
    """Exactly one of these: whose tokens end."""

    username: Username | None = None
    manager_id: UUID | None = None
    worker_id: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = (self.username, self.manager_id, self.worker_id)
        if sum(one is not None for one in given) != 1:
            raise ValueError("give exactly one of username, manager_id and worker_id")
        return self


class RevokedTokens(AnswerBody):
    kind: HolderKind
    id: UUID
    token_version: int
    """Of tokens that are valid from now on."""


class IssueToken(RequestBody):
    lifetime: PositiveDuration = TOKEN_LIFETIME


class UiLink(AnswerBody):
    path: str
    """Of the API's address, for a browser; a secret that opens once."""
