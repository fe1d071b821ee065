"""What is kept for how long, and what of it has been deleted (C-34)."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, AwareDatetime, model_validator

from mitosis.contracts.checked_model import Flag
from mitosis.contracts.duration import Duration
from mitosis.contracts.http import AnswerBody, RequestBody

RetentionKind: TypeAlias = Literal[
    "leases",
    "environments",
    "hook_runs",
    "worker_registrations",
    "worker_named_tasks",
    "worker_services",
    "hosts",
    "group_bookkeeping",
    "task_groups",
    "runs",
    "deleted_groups",
]
"""Kinds of rows that are not kept for ever. ``group_bookkeeping``: failures, submissions, failures of hosts
and durations of settled groups. ``worker_named_tasks``: what a worker service supports no longer.
``worker_services``: those that are gone, ``hosts``: deleted ones, both when nothing names them any more.
``runs``: ended ones, with their own task groups. ``deleted_groups``: what is kept of them for hosts that were
cut off."""
RETENTION_KINDS: tuple[RetentionKind, ...] = get_args(RetentionKind)

BOOKKEEPING = timedelta(days=30)
"""How long ended leases and other bookkeeping are kept, unless the deployment sets another time."""
SHORTEST_BOOKKEEPING = timedelta(days=1)
"""Scheduling looks back for up to an hour, figures for up to a day."""
SHORTEST_KEEP = timedelta(hours=1)
"""For at least this long a settled task group can be read."""


def _long_enough(duration: timedelta) -> timedelta:
    if duration < SHORTEST_KEEP:
        raise ValueError("must be at least 1 hour")
    return duration


KeepDuration = Annotated[Duration, AfterValidator(_long_enough)]


@dataclass(frozen=True, slots=True)
class RetentionTerms:
    """How long a deployment keeps what it does not keep for ever."""

    bookkeeping: timedelta = BOOKKEEPING
    """Of what has ended; of failures, submissions and durations: after their group has settled."""
    task_groups: timedelta | None = None
    """Settled task groups with tasks and results, and ended runs with theirs; a user group may have its own
    time. None: until deleted."""


DEFAULT_RETENTION = RetentionTerms()


class KeptRows(AnswerBody):
    """One kind of row that is not kept for ever, and its deletion."""

    kind: str
    kept_seconds: float | None
    """As of the last pass. None: there was none, or they are kept until a user deletes them."""
    deleted_in_all: int
    deleted_last: int
    """By the pass in progress, or else by the last one."""
    in_progress: bool
    finished_at: AwareDatetime | None
    """When the last pass ended."""
    next_at: AwareDatetime
    """When the next one begins."""
    overdue_seconds: float
    """Since then, by the clock of PostgreSQL; 0 before it."""


class KeepTaskGroups(RequestBody):
    """For how long a user group keeps its settled task groups."""

    keep: KeepDuration | None
    """From settlement on; null: as the deployment says."""
    for_ever: Flag = False
    """Until a user deletes them; ``keep`` is null then."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.for_ever and self.keep is not None:
            raise ValueError("give keep or for_ever, not both")
        return self


class UserGroupRetention(AnswerBody):
    group_name: str
    keep_seconds: float | None
    """None: for ever, or as the deployment says."""
    for_ever: bool
    deployment_keep_seconds: float | None
    """Where the user group has no time of its own; None: until a user deletes them."""


class Retention(AnswerBody):
    """Everything that is not kept for ever."""

    kinds: tuple[KeptRows, ...]
