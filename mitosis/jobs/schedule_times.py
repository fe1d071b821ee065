"""The times of a schedule. Pure.

A calendar is of wall-clock times in a time zone. Where the clocks go forward, a time that is left out does
not count. Where they go back, a time that comes twice counts once, the first time; but each hour counts of a
calendar of every hour, which is one of UTC as long as the offset of the zone changes by whole hours.

Temporal computes the same times, except around the hour in which the clocks go back: it leaves out or repeats
some. On these days it gets the instants (:func:`instants_of`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from heapq import merge
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from mitosis.contracts.calendars import YEARS, Calendar
from mitosis.contracts.schedules import Interval, Timing, zone_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
HOUR_SECONDS = 3600
LONGEST_HOUR = timedelta(hours=3)
"""No wall-clock hour ends later after its start, where the clocks go back."""
SHIFT, LONGEST_SHIFT = timedelta(minutes=15), timedelta(hours=3)
"""By multiples of so much, up to so much, data of a time zone differ."""
MOST_NEAR = 1000
"""A calendar has one time in a minute at most."""
DAYS_AHEAD = 2
BEFORE_A_CHANGE, AFTER_A_CHANGE = 3 * DAY, 7 * DAY
"""Temporal gets the instants of these days. They outlast the change in case the control worker is away."""
MOST_INSTANTS = 20_000
KEPT_INSTANTS = 256
YEARS_LOOKED_AT = 30
"""How far ahead times are searched: 29 February falls on each weekday once in 28 years."""


def times_after(timing: Timing, after: datetime) -> Iterator[datetime]:
    """Yield the times later than ``after``, in their order and in UTC."""
    if timing.start_at is not None:
        after = max(after, timing.start_at - timedelta(microseconds=1))
    if timing.interval is not None:
        found = _interval_times(timing.interval, after)
    else:
        each = [_times_of_calendar(one, timing, after) for one in timing.calendars]
        found = _without_repetition(merge(*each))
    end = timing.end_at
    return found if end is None else takewhile(lambda time: time <= end, found)


def times_between(timing: Timing, first: datetime, last: datetime, most: int) -> list[datetime]:
    """Return the times from ``first`` to ``last``, both included, and at most ``most`` of them."""
    later = times_after(timing, first - timedelta(microseconds=1))
    return list(islice(takewhile(lambda time: time <= last, later), most))


def next_times(timing: Timing, after: datetime, count: int) -> list[datetime]:
    """Return the next times in the time zone of the schedule."""
    return [time.astimezone(timing.zone) for time in islice(times_after(timing, after), count)]


def is_a_time(timing: Timing, at: datetime) -> bool:
    """Return whether this is a time of the schedule."""
    return bool(times_between(timing, at, at, 1))


def repeats_a_time(timing: Timing, at: datetime) -> bool:
    """Return whether the wall-clock time of a time of the schedule comes again now: it counts once."""
    first = _instant(at.astimezone(timing.zone), 0)
    return first != at and is_a_time(timing, first)


def may_be_a_time_elsewhere(timing: Timing, at: datetime) -> bool:
    """Return whether this is a time by other data of the time zone, as Temporal may have."""
    if not timing.calendars or timing.time_zone == "UTC":
        return False
    near = times_between(timing, at - LONGEST_SHIFT, at + LONGEST_SHIFT, MOST_NEAR)
    return any((time - at) % SHIFT == timedelta(0) for time in near)


def calendars_of(timing: Timing, now: datetime) -> tuple[Sequence[Calendar], str]:
    """Return the calendars that Temporal gets from now on, and their time zone."""
    shifts = {
        _shift_of_minutes(timing.time_zone) if calendar.is_hourly else None
        for calendar in timing.calendars
    }
    if shifts and None not in shifts:
        return [_in_utc(one, timing.time_zone) for one in timing.calendars], "UTC"
    if timing.calendars and (day := _day_of_change(timing, now)) is not None:
        return _instants_around(timing.model_dump_json(), day), "UTC"
    return timing.calendars, timing.time_zone


@lru_cache(maxsize=KEPT_INSTANTS)
def _instants_around(timing: str, day: datetime) -> Sequence[Calendar]:
    """Return those around a change of the clocks; kept, as each reconcile compares them with Temporal's."""
    found = Timing.model_validate_json(timing)
    return instants_of(found, day - BEFORE_A_CHANGE, day + AFTER_A_CHANGE)


def instants_of(timing: Timing, first: datetime, last: datetime) -> Sequence[Calendar]:
    """Return the times between two moments as calendars of UTC, one for each day and set of minutes."""
    minutes: dict[tuple[datetime, int], set[int]] = {}
    for time in times_between(timing, first, last, MOST_INSTANTS):
        hour = time.replace(minute=0, second=0)
        minutes.setdefault((hour, time.second), set()).add(time.minute)
    hours: dict[tuple[datetime, int, tuple[int, ...]], set[int]] = {}
    for (hour, second), found in minutes.items():
        key = (hour.replace(hour=0), second, tuple(sorted(found)))
        hours.setdefault(key, set()).add(hour.hour)
    return [
        Calendar(
            second=(second,),
            minute=each,
            hour=tuple(sorted(found)),
            day_of_month=(day.day,),
            month=(day.month,),
            year=(day.year,),
        )
        for (day, second, each), found in hours.items()
    ]


def _day_of_change(timing: Timing, now: datetime) -> datetime | None:
    """Return the day on which the clocks go back, from two days before it to its end."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in (today + number * DAY for number in range(DAYS_AHEAD + 1)):
        if _offset_at(timing.zone, day) > _offset_at(timing.zone, day + DAY):
            return day
    return None


def _offset_at(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta(0)


def _in_utc(calendar: Calendar, time_zone: str) -> Calendar:
    shift = _shift_of_minutes(time_zone) or 0
    minutes = sorted((minute - shift) % 60 for minute in calendar.minute)
    return replace(calendar, minute=tuple(minutes))


def _shift_of_minutes(time_zone: str) -> int | None:
    """Return the minutes by which the hours of a zone are shifted; None: that changes, or is no number."""
    zone, year = zone_of(time_zone), datetime.now(UTC).year
    offsets = {
        datetime(each, month, 1, tzinfo=zone).utcoffset() or timedelta(0)
        for each in range(year - 1, year + 3)
        for month in range(1, 13)
    }
    shifts = {offset.total_seconds() % HOUR_SECONDS / 60 for offset in offsets}
    shift = shifts.pop()
    return int(shift) if not shifts and shift.is_integer() else None


def _times_of_calendar(calendar: Calendar, timing: Timing, after: datetime) -> Iterator[datetime]:
    if calendar.is_hourly and _shift_of_minutes(timing.time_zone) is not None:
        return _calendar_times(_in_utc(calendar, timing.time_zone), ZoneInfo("UTC"), after)
    return _calendar_times(calendar, timing.zone, after)


def _interval_times(interval: Interval, after: datetime) -> Iterator[datetime]:
    number = (after - EPOCH - interval.offset) // interval.every + 1
    while True:
        yield EPOCH + interval.offset + number * interval.every
        number += 1


def _calendar_times(calendar: Calendar, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    today = after.astimezone(zone).date()
    for day in _days(calendar, today - DAY):
        for hour in calendar.hour:
            start = datetime(day.year, day.month, day.day, hour, tzinfo=zone)
            if start.replace(fold=1).astimezone(UTC) < after - LONGEST_HOUR:
                continue
            for time in _times_of_hour(calendar, start):
                if time > after:
                    yield time


def _days(calendar: Calendar, first: date) -> Iterator[date]:
    """Yield the days that match, until none comes in 30 years."""
    day = max(first, date(YEARS[0], 1, 1))
    last = day.year + YEARS_LOOKED_AT
    while day.year <= min(last, YEARS[1]):
        if day.month not in calendar.month or (calendar.year and day.year not in calendar.year):
            day = (day.replace(day=1) + 32 * DAY).replace(day=1)
            continue
        weekday = (day.weekday() + 1) % 7
        if day.day in calendar.day_of_month and weekday in calendar.day_of_week:
            last = day.year + YEARS_LOOKED_AT
            yield day
        day += DAY


def _times_of_hour(calendar: Calendar, start: datetime) -> Iterator[datetime]:
    """Yield the times of a wall-clock hour. The first instants of wall-clock times rise with them."""
    offset = start.utcoffset() or timedelta(0)
    if _offsets(start) | _offsets(start.replace(minute=59, second=59)) == {offset}:
        utc = (start.replace(tzinfo=None) - offset).replace(tzinfo=UTC)
        for minute in calendar.minute:
            for second in calendar.second:
                yield utc + timedelta(minutes=minute, seconds=second)
        return
    for minute in calendar.minute:
        for second in calendar.second:
            wall = start.replace(minute=minute, second=second)
            if (time := _instant_that_counts(wall)) is not None:
                yield time


def _offsets(wall: datetime) -> set[timedelta]:
    return {wall.replace(fold=fold).utcoffset() or timedelta(0) for fold in (0, 1)}


def _instant_that_counts(wall: datetime) -> datetime | None:
    """Return the first instant of a wall-clock time; None if it does not exist on that day."""
    first = _instant(wall, 0)
    back = first.astimezone(wall.tzinfo)
    return first if back.replace(tzinfo=None) == wall.replace(tzinfo=None) else None


def _instant(wall: datetime, fold: int) -> datetime:
    return wall.replace(fold=fold).astimezone(UTC)


def _without_repetition(times: Iterator[datetime]) -> Iterator[datetime]:
    last = None
    for time in times:
        if time != last:
            yield time
        last = time
