"""Bodies of the calls that change which managers are members of a task group."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from mitosis.contracts.http import AnswerBody, RequestBody

MAX_NAMED_MANAGERS = 1000


class NamedManagers(RequestBody):
    """Managers that a user adds to a task group, or removes from it."""

    manager_ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_NAMED_MANAGERS)]
    selection_type: Literal["user_specified"] = "user_specified"
    """Managers that tags match are added by a refresh."""


class RefreshedManagers(AnswerBody):
    """The changes made by a refresh of a group's managers."""

    added_managers: list[UUID]
    removed_managers: list[UUID]
    """Tag-matched ones that no longer match."""
    user_specified_kept: list[UUID]
