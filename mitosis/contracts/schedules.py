"""Schedules of jobs: when they start runs, and the bodies of the calls about them."""

from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from mitosis.contracts.calendars import Calendar, numbers, parse_cron
from mitosis.contracts.checked_model import Flag, Integer
from mitosis.contracts.duration import Duration
from mitosis.contracts.errors import Unavailable
from mitosis.contracts.http import AnswerBody, RequestBody
from mitosis.contracts.identifiers import NewName, PlainText
from mitosis.contracts.lifecycle import RunState
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.queries import Query
from mitosis.contracts.runs import MAX_LABELS

MIN_INTERVAL = timedelta(seconds=10)
MIN_CATCH_UP = timedelta(seconds=10)
DEFAULT_CATCH_UP = timedelta(days=1)
MAX_JITTER = timedelta(days=1)
SHOWN_TIMES = 5
MAX_BACKFILL = 1000
"""Times of one backfill."""
MAX_WAITING = 10_000
"""Runs that a schedule is to start, and that wait."""
MAX_NOTE = 500
MAX_TIMING = 200
"""Characters of a cron expression, of a field of a calendar, and of the name of a time zone."""
TIMES = (datetime(1970, 1, 1, tzinfo=UTC), datetime(2101, 1, 1, tzinfo=UTC))
"""Of schedules and backfills, without the second one: near year 1 and 9999, other zones lack some of them."""
LATEST = "latest"
MAX_VERSION = 2**31 - 1


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones()) - {"localtime", "Factory"}  # not the same everywhere


def _known_zone(name: str) -> str:
    if name not in _zones():
        near = get_close_matches(name[:60], _zones(), n=1)
        meant = f"; did you mean {near[0]}?" if near else "; write one as Europe/Berlin or UTC"
        raise ValueError(f"there is no time zone {name!r:.60}{meant}")
    return name


def _one_time_a_minute(text: str) -> str:
    if len(numbers(text, "second")) != 1:
        raise ValueError("must be one number: a schedule starts at most one run in a minute")
    return text


def _long_enough(every: timedelta) -> timedelta:
    if every < MIN_INTERVAL:
        raise ValueError(f"must be at least {MIN_INTERVAL.seconds} seconds")
    return _whole(every)


def _whole(duration: timedelta) -> timedelta:
    if duration < timedelta(0) or duration.microseconds:
        raise ValueError("must be a whole number of seconds, 0 or more")
    return duration


def _catch_up(window: timedelta) -> timedelta:
    if window < MIN_CATCH_UP:
        raise ValueError(f"must be at least {MIN_CATCH_UP.seconds} seconds")
    return _whole(window)


def _jitter(jitter: timedelta) -> timedelta:
    if jitter > MAX_JITTER:
        raise ValueError("must be at most one day")
    return _whole(jitter)


def _of_a_backfill(overlap: Overlap) -> Overlap:
    if overlap not in (Overlap.BUFFER_ALL, Overlap.ALLOW_ALL):
        raise ValueError("must be buffer_all or allow_all")
    return overlap


def _in_range(moment: datetime) -> datetime:
    if not TIMES[0] <= moment < TIMES[1]:
        raise ValueError(f"must be in the years {TIMES[0].year} to {TIMES[1].year - 1}")
    return moment


def _version(value: object) -> object:
    if value == LATEST or (type(value) is int and 1 <= value <= MAX_VERSION):
        return value
    raise ValueError(f"must be a number from 1, or {LATEST}")


def _cron(text: str) -> str:
    parse_cron(text)
    return text.strip()


def _field(name: str) -> AfterValidator:
    def check(text: str) -> str:
        numbers(text, name)
        return text

    return AfterValidator(check)


def zone_of(name: str) -> ZoneInfo:
    """Return the data of a time zone.

    Raises:
        Unavailable: this host has none of this name; another one may.
    """
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise Unavailable(
            f"this host has no data of the time zone {name}: update its tzdata"
        ) from None


TimeZone = Annotated[str, Field(max_length=MAX_TIMING), AfterValidator(_known_zone)]
Cron = Annotated[PlainText, Field(max_length=MAX_TIMING), AfterValidator(_cron)]
_Text = Annotated[PlainText, Field(max_length=MAX_TIMING)]
Moment = Annotated[AwareDatetime, AfterValidator(_in_range)]
Offset = Annotated[Duration, AfterValidator(_whole)]
Every = Annotated[Duration, AfterValidator(_long_enough)]
CatchUp = Annotated[Duration, AfterValidator(_catch_up)]
Jitter = Annotated[Duration, AfterValidator(_jitter)]
Note = Annotated[PlainText, Field(max_length=MAX_NOTE)]
Version = Annotated[Integer | Literal["latest"], BeforeValidator(_version)]
"""Of a job: a number, or ``latest``: the last one at each time."""


class Interval(RequestBody):
    """At multiples of ``every`` since 1970-01-01 in UTC, moved by ``offset``."""

    every: Every
    offset: Offset = Field(default=timedelta(0))

    @field_validator("offset")
    @classmethod
    def _below(cls, offset: timedelta, known: ValidationInfo) -> timedelta:
        every = known.data.get("every")
        if every is not None and offset >= every:
            raise ValueError("must be shorter than every")
        return offset


class CalendarFields(RequestBody):
    """At times whose every field matches: numbers, ranges and lists as ``1-5,10`` or ``*/15``."""

    second: Annotated[_Text, _field("second"), AfterValidator(_one_time_a_minute)] = "0"
    minute: Annotated[_Text, _field("minute")] = "0"
    hour: Annotated[_Text, _field("hour")] = "0"
    day_of_month: Annotated[_Text, _field("day of month")] = "*"
    month: Annotated[_Text, _field("month")] = "*"
    year: Annotated[_Text, _field("year")] = "*"
    day_of_week: Annotated[_Text, _field("day of week")] = "*"

    def calendar(self) -> Calendar:
        """Return the numbers of its fields."""
        return Calendar(
            second=numbers(self.second, "second"),
            minute=numbers(self.minute, "minute"),
            hour=numbers(self.hour, "hour"),
            day_of_month=numbers(self.day_of_month, "day of month"),
            month=numbers(self.month, "month"),
            year=() if self.year == "*" else numbers(self.year, "year"),
            day_of_week=numbers(self.day_of_week, "day of week"),
        )


class Timing(RequestBody):
    """When a stored schedule starts runs: exactly one of ``cron``, ``interval`` and ``calendar``."""

    cron: Cron | None = None
    interval: Interval | None = None
    calendar: CalendarFields | None = None
    time_zone: str = "UTC"
    """Checked when it was stored: each host has its own list of time zones."""
    start_at: Moment | None = None
    end_at: Moment | None = None

    @property
    def calendars(self) -> tuple[Calendar, ...]:
        """The calendars, a time of any of which counts; none of an interval."""
        if self.cron is not None:
            return parse_cron(self.cron)
        return () if self.calendar is None else (self.calendar.calendar(),)

    @property
    def zone(self) -> ZoneInfo:
        return zone_of(self.time_zone)

    def text(self) -> str:
        """Return it as people write it."""
        if self.cron is not None:
            return f"{self.cron} {self.time_zone}"
        if self.interval is not None:
            offset = self.interval.offset
            return f"every {self.interval.every}" + (f" + {offset}" if offset else "")
        fields = self.calendar.model_dump(exclude_unset=True) if self.calendar else {}
        return " ".join(f"{name}={text}" for name, text in fields.items()) + f" {self.time_zone}"


class CreateSchedule(RequestBody):
    """Start runs of a stored job by time: exactly one of ``cron``, ``interval`` and ``calendar``."""

    job: Annotated[str, Field(min_length=1, max_length=201)]
    """Id, ``NAME`` or ``USERGROUP/NAME``; the schedule and its runs are of its user group."""
    name: NewName | None = None
    """Unique in the user group; None: that of the job."""
    version: Version | None = None
    """Of the job; None: the one that is the last now."""
    parameters: dict[str, Any] = Field(default={})
    """Values by name. Texts may name ``{{ run.nominal_time }}``, ``{{ run.nominal_date }}`` and ``job``."""
    labels: Annotated[tuple[PlainText, ...], Field(max_length=MAX_LABELS)] = ()
    """Of its runs."""
    cron: Cron | None = None
    interval: Interval | None = None
    calendar: CalendarFields | None = None
    time_zone: TimeZone = "UTC"
    start_at: Moment | None = None
    end_at: Moment | None = None
    """The first and the last time that counts."""
    overlap: Overlap = Overlap.SKIP
    jitter: Jitter = Field(default=timedelta(0))
    """Each run starts up to so much later than its time."""
    catch_up: CatchUp = Field(default=DEFAULT_CATCH_UP)
    """Times that were missed, because nothing ran, are made up for within this."""
    paused: Flag = False
    note: Note | None = None
    dry_run: Flag = False
    """Answer with the schedule and its next times, and store nothing."""


class UpdateSchedule(RequestBody):
    """Change the given fields; ``null`` clears ``start_at``, ``end_at`` and ``note``.

    An admin who changes the schedule of another user becomes its owner.
    """

    version: Version | None = None
    accepted_version: Annotated[Integer, Field(ge=1, le=MAX_VERSION)] | None = None
    """With the version ``latest``: versions up to this one run with the rights of the owner, also those of
    other users. A change to ``latest``, or of the owner, accepts the last one."""
    revision: Annotated[Integer, Field(ge=1)] | None = None
    """Change it only while it is of this revision."""
    parameters: dict[str, Any] | None = None
    labels: Annotated[tuple[PlainText, ...], Field(max_length=MAX_LABELS)] | None = None
    cron: Cron | None = None
    interval: Interval | None = None
    calendar: CalendarFields | None = None
    time_zone: TimeZone | None = None
    start_at: Moment | None = None
    end_at: Moment | None = None
    overlap: Overlap | None = None
    jitter: Jitter | None = None
    catch_up: CatchUp | None = None
    note: Note | None = None
    dry_run: Flag = False


class PauseSchedule(RequestBody):
    """Start no runs at its times, nor of backfills, until resumed. Times that pass are not made up for."""

    note: Note | None = None
    """Shown with the schedule, also in the Temporal Web UI; None: the note stays."""
    drop: Flag = False
    """End all that waits to start, without runs; else it waits until the schedule is resumed."""


class ResumeSchedule(RequestBody):
    """Start runs at its times again, from now on, and those that have waited."""

    note: Note | None = None
    """Shown with the schedule, also in the Temporal Web UI; None: the note stays."""


class TriggerSchedule(RequestBody):
    """Start a run now, also of a paused schedule."""

    overlap: Overlap | None = None
    """None: that of the schedule."""


class BackfillSchedule(RequestBody):
    """Start the runs of past times. A time that has a run gets no second one."""

    first: Moment
    last: Moment
    """The first and the last time that may count."""
    overlap: Annotated[Overlap, AfterValidator(_of_a_backfill)] = Overlap.BUFFER_ALL
    """``buffer_all``: one run after the other; ``allow_all``: at the same time."""
    dry_run: Flag = False
    """Answer with the times only."""

    @field_validator("last")
    @classmethod
    def _after(cls, last: datetime, known: ValidationInfo) -> datetime:
        first = known.data.get("first")
        if first is not None and last < first:
            raise ValueError("must not be before first")
        return last


class ScheduledRun(AnswerBody):
    """The last run of a schedule."""

    run_id: UUID
    state: RunState
    nominal_time: datetime


class WithoutRun(AnswerBody):
    """A time, or a start that was asked for, that has got no run."""

    nominal_time: datetime
    reason: str


class ScheduleInfo(AnswerBody):
    """One schedule."""

    schedule_id: UUID
    name: str
    group_name: str
    job_id: UUID
    job_name: str
    version: int | Literal["latest"]
    """Of the job; ``latest``: the last one at each time."""
    latest_version: int
    """The last one now."""
    accepted_version: int | None = None
    """With the version ``latest``: a later one runs only if the owner or an administrator has stored it."""
    owner: str
    """Its runs have the rights of this user, who can change it, as can admins of the user group."""
    parameters: dict[str, Any] = Field(default={})
    labels: tuple[str, ...] = ()
    cron: str | None = None
    interval: Interval | None = None
    calendar: CalendarFields | None = None
    time_zone: str
    start_at: datetime | None = None
    end_at: datetime | None = None
    overlap: Overlap
    jitter: Duration
    catch_up: Duration
    paused: bool
    note: str | None = None
    revision: int
    """Grows with each change."""
    carried_revision: int
    """The last one that Temporal has; smaller than ``revision``: a change waits for it."""
    created_at: datetime
    updated_at: datetime
    next_times: tuple[datetime, ...] = ()
    """In its time zone, without jitter; none while it is paused."""
    last_run: ScheduledRun | None = None
    without_run: WithoutRun | None = None
    """The last time or start by hand that has got no run, and why."""
    refusal: str | None = None
    """Why the last time that was to start a run has started none."""
    refused_at: datetime | None = None
    problem: str | None = None
    """Why Temporal does not have the schedule as it is: its times are late, or cannot be read."""
    problem_at: datetime | None = None
    late_by: Duration | None = None
    """How long after it the last time was noticed: longer than its jitter if nothing ran."""
    reverted: str | None = None
    """The last change that was made by hand in Temporal, and was undone."""
    reverted_at: datetime | None = None

    def timing(self) -> Timing:
        """Return when it starts runs."""
        return Timing(
            cron=self.cron,
            interval=self.interval,
            calendar=self.calendar,
            time_zone=self.time_zone,
            start_at=self.start_at,
            end_at=self.end_at,
        )


class TriggerAnswer(AnswerBody):
    """A run that was asked for. It starts as soon as the overlap policy allows it.

    If it gets none, the schedule says why in ``without_run``.
    """

    nominal_time: datetime


class BackfillAnswer(AnswerBody):
    """The times of a backfill."""

    times: tuple[datetime, ...]
    """Those without a run, in the time zone of the schedule."""
    have_runs: int
    """How many more times have one already."""


class ScheduleQuery(Query):
    """Query of the list of schedules, by user group and name."""

    job: str | None = None
    """Name of the job."""
    group_name: str | None = None
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100
