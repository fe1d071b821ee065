"""Queries of the HTTP calls that list and follow: pydantic models, shared by the API and the SDK.

Values arrive as text, so these models parse numbers and booleans from text, unlike body models.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from mitosis.contracts.http import MAX_GRACE_SECONDS, MAX_WAIT_SECONDS
from mitosis.contracts.lifecycle import ListedState, TaskGroupState

Until: TypeAlias = Literal["changed", "complete", "settled"]
ResultNumber = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Number of a result in its group, in the order of recording; 0 = before the first."""
WaitSeconds = Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)]


class Query(BaseModel):
    """Base of the queries."""

    model_config = ConfigDict(extra="forbid")


class GroupsQuery(Query):
    """Query of the list of groups; a group must match every condition."""

    state: list[TaskGroupState] = []
    tag: list[str] = []
    label: list[str] = []
    name: str | None = None
    settled: bool | None = None
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50


class GroupQuery(Query):
    """Query of one group: wait for a condition, or answer at once."""

    wait_seconds: WaitSeconds = 0.0
    until: Until = "changed"


class DeleteGroupQuery(Query):
    """Query of the deletion of a group."""

    force: bool = False
    """Also one that is not settled: it is cancelled, its hosts clean up, then it is deleted."""
    grace_seconds: Annotated[float, Field(ge=0, le=MAX_GRACE_SECONDS)] | None = None
    """From SIGTERM to SIGKILL of its running tasks; left out: the grace of the group."""
    reason: Annotated[str, Field(max_length=1000)] | None = None


class TasksQuery(Query):
    """Query of the tasks of a group."""

    state: ListedState | None = None
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class ResultsQuery(Query):
    """Query of the results of a group: wait for the next result, or answer at once."""

    after: ResultNumber = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    wait_seconds: WaitSeconds = 0.0


class EventsQuery(Query):
    """Query of the events of a group."""

    after: ResultNumber = 0
    """Number of the last result received; ``Last-Event-ID`` means the same and takes precedence."""
    results: bool = True
    """Send the results too, not only events about the group."""


class OutputQuery(Query):
    """Query of the output of a group."""

    after: ResultNumber = 0
    """Number of the last result received; ``Last-Event-ID`` means the same and takes precedence."""


class ListQuery(Query):
    """Query of a list without conditions."""

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100
