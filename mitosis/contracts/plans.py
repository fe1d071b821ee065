"""A dry run of a task group: what hosts would do for it, when it would begin and end. Nothing is created."""

from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

from pydantic import Field

from mitosis.contracts.checked_model import Integer
from mitosis.contracts.http import AnswerBody, PositiveDuration, RequestBody, TaskGroupSpec

MOST_TASKS = 10**9


class PlanTaskGroup(RequestBody):
    """What to plan."""

    spec: TaskGroupSpec
    tasks: Annotated[Integer, Field(ge=1, le=MOST_TASKS)] = 1
    """How many tasks are submitted at once."""
    task_duration: PositiveDuration | None = None
    """How long one takes; None = as measured with task groups of the same setup hook in this user group."""


class SpanBand(AnswerBody):
    """A span of time that is known roughly."""

    least: timedelta
    expected: timedelta | None = None
    """null: nothing was measured."""
    most: timedelta | None = None
    """null: without a limit."""


class TimeBand(AnswerBody):
    """A moment that is known roughly, if the task group were created now."""

    earliest: datetime
    expected: datetime | None = None
    latest: datetime | None = None


class PlannedHostInfo(AnswerBody):
    """What one host would do for the task group."""

    manager_id: UUID
    name: str
    gets: bool
    """It would be given to the task group at once."""
    code: str
    """``gets``, or the first condition that does not hold: stable, for programs."""
    line: str
    """What is in the way, after the name of the host; what it would do, if it is given to the task group."""
    workers: int = 0
    """Workers that it would start."""
    free_at: TimeBand | None = None
    """When time alone makes it free for the task group; null: nothing is known."""


class PlannedResources(AnswerBody):
    """What the task group would use."""

    hosts: int
    """Given to it at once."""
    useful_hosts: int
    """It has work for so many."""
    able_hosts: int
    """Hosts that may serve it, whether free or not."""
    workers: int
    """On the hosts given at once."""
    cores: int | None = None
    """Exclusively bound on them; null: cores are shared."""
    tasks: int
    host_time: SpanBand | None = None
    """Of all hosts together, with setup and teardown; null: nothing is known about the tasks."""


class PlanInfo(AnswerBody):
    """The answer of a dry run."""

    name: str
    group_name: str
    hosts: list[PlannedHostInfo]
    """Every host that has a role in the user group or is named, those that it would get first."""
    begins: TimeBand | None = None
    """When its first task would run; null: not before something else than time changes."""
    ends: TimeBand | None = None
    """When its last task would have ended; null: nothing is known about the tasks, or it does not begin."""
    setup: SpanBand
    teardown: SpanBand
    task: SpanBand | None = None
    measured_runs: int = 0
    """Setups and tasks, in all, on which these durations rest."""
    resources: PlannedResources
    smallest_change: str | None = None
    """What would give it a host, if it gets none."""
