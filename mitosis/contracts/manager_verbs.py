"""Bodies of the verbs on one host: drain, change, delete."""

from typing import Annotated

from pydantic import StringConstraints

from mitosis.contracts.checked_model import Flag
from mitosis.contracts.http import RequestBody
from mitosis.contracts.identifiers import NewName, Tag
from mitosis.contracts.queries import Query


class DrainBody(RequestBody):
    """How a host is drained."""

    now: Flag = False
    """Give back what has not started; False: finish everything that the host has claimed."""
    reason: Annotated[str, StringConstraints(max_length=1000)] | None = None


class ManagerUpdate(RequestBody):
    """The fields of a host to change; a field that is left out stays."""

    name: NewName | None = None
    """No other host of its user groups may have it."""
    tags: frozenset[Tag] | None = None
    """All tags. Task groups follow when their list of managers is refreshed."""
    labels: frozenset[Tag] | None = None


class DeleteManagerQuery(Query):
    """Query of the deletion of a host."""

    force: bool = False
    """Forget what an unreachable host has to clean up, because its machine no longer exists."""
