"""What the workflow of a scheduled run, the control worker and the store say to each other."""

from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

from pydantic import ValidationError

from mitosis.contracts.control import Model
from mitosis.contracts.errors import InvalidRequest, Unavailable
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedules import Timing

UNREADABLE = (ValueError, OverflowError, InvalidRequest, Unavailable)
"""What computing the times of a stored schedule may raise: on another host, or by another version."""

REFUSED = "Temporal: "
"""So begins the problem of a schedule that Temporal does not accept; others are of a host."""


def unreadable_text(error: Exception) -> str:
    """Return why the times of a schedule cannot be computed."""
    if isinstance(error, ValidationError):
        parts = [f"{'.'.join(map(str, one['loc']))} {one['msg']}" for one in error.errors()[:3]]
        return f"its times cannot be read: {'; '.join(parts):.400}"
    return f"its times cannot be computed: {error!s:.400}"


def times_digest(timing: Timing) -> str:
    """Return by what Temporal's copy of the times is known: equal for equal times."""
    interval = None if timing.interval is None else (timing.interval.every, timing.interval.offset)
    ends = (timing.start_at, timing.end_at)
    moments = [None if one is None else one.timestamp() for one in ends]
    facts = (timing.calendars, interval, timing.time_zone, moments)
    return sha256(repr(facts).encode()).hexdigest()[:16]


class ScheduledRunInput(Model):
    schedule_id: UUID
    times: str = ""
    """The digest of the times that Temporal has."""


class Tick(Model):
    """One start of the workflow of a schedule."""

    schedule_id: UUID
    nominal_time: datetime
    started_at: datetime
    times: str = ""
    """The digest of the times that Temporal has."""


class TickAnswer(Model):
    run_id: UUID | None = None
    """The run of this time, also if it was there before."""
    reason: str | None = None
    """Why there is none."""


class ScheduledRunSummary(Model):
    """The result of the workflow."""

    run_id: UUID | None = None
    reason: str | None = None


class UnreadableSchedule(Model):
    """A row of ``schedules`` that this process cannot read: it stays in Temporal as it is."""

    schedule_id: UUID
    name: str
    revision: int
    carried_revision: int = 0
    reason: str
    """Why, as users see it."""

    @property
    def is_carried(self) -> bool:
        """Whether another process has brought this revision to Temporal."""
        return self.revision == self.carried_revision


class CarriedSchedule(Model):
    """A row of ``schedules``, as Temporal gets it."""

    schedule_id: UUID
    name: str
    user_group: str
    job: str
    timing: Timing
    overlap: Overlap
    jitter: timedelta
    catch_up: timedelta
    paused: bool
    note: str | None = None
    revision: int
    carried_revision: int
    problem: str | None = None
    """Why Temporal does not accept this revision, or a host cannot read it."""
    now: datetime
    """Of PostgreSQL."""

    @property
    def is_settled(self) -> bool:
        """Whether Temporal has this revision, unless it has lost it, or does not accept it."""
        return self.is_carried or self.is_refused

    @property
    def is_carried(self) -> bool:
        """Whether Temporal has got this revision."""
        return self.revision == self.carried_revision

    @property
    def is_refused(self) -> bool:
        """Whether Temporal does not accept this revision, whichever host brings it."""
        return self.problem is not None and self.problem.startswith(REFUSED)
