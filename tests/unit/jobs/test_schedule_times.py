"""The times of schedules; integration/workflows/test_schedule_times.py compares them with Temporal."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest

from mitosis.contracts.calendars import Calendar
from mitosis.contracts.schedules import Timing
from mitosis.jobs import schedule_times
from mitosis.jobs.schedule_times import (
    calendars_of,
    instants_of,
    is_a_time,
    next_times,
    repeats_a_time,
    times_after,
    times_between,
)

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
SPRING = datetime(2026, 3, 29, 1, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 25, 1, tzinfo=UTC)
AUTUMN_THERE = datetime(2026, 11, 1, 6, tzinfo=UTC)
DAY = timedelta(days=1)
NOW = datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "cron", "change", "hours"),
    [
        (BERLIN, "30 2 * * *", SPRING, (24, 47)),  # 29 March has no 02:30
        (BERLIN, "30 2 * * *", AUTUMN, (24, 25)),  # once on 25 October, the first time
        (NEW_YORK, "30 1 * * *", AUTUMN_THERE, (24, 25)),
        (BERLIN, "0 * * * *", AUTUMN, (1,)),  # each hour, also the repeated one
        (BERLIN, "0 * * * *", SPRING, (1,)),
        ("Asia/Kolkata", "0 * * * *", AUTUMN, (1,)),
    ],
)
def test_a_wall_clock_time_counts_once_or_not_at_all(
    zone: str, cron: str, change: datetime, hours: tuple[int, ...]
) -> None:
    timing = Timing(cron=cron, time_zone=zone)
    times = times_between(timing, change - 2 * DAY, change + 2 * DAY, 200)
    gaps = {(later - earlier) / timedelta(hours=1) for earlier, later in pairwise(times)}
    assert gaps == set(hours)
    assert all(is_a_time(timing, one) for one in times)


def test_a_time_counts_once_where_the_clocks_go_back_and_others_of_that_hour_are_free() -> None:
    nightly = Timing(cron="30 2 * * *", time_zone=BERLIN)
    first, second = AUTUMN - timedelta(minutes=30), AUTUMN + timedelta(minutes=30)
    assert is_a_time(nightly, first)
    assert [repeats_a_time(nightly, one) for one in (first, second)] == [False, True]
    assert not repeats_a_time(nightly, second + timedelta(seconds=7)), "a start by hand"


def test_only_where_the_clocks_go_back_temporal_gets_instants() -> None:
    nightly = Timing(cron="0,30 2 * * *", time_zone=BERLIN)
    for now, expected in (
        (AUTUMN - 4 * DAY, BERLIN),
        (AUTUMN - 2 * DAY, "UTC"),
        (AUTUMN, "UTC"),
        (AUTUMN + DAY, BERLIN),
        (SPRING, BERLIN),
    ):
        assert calendars_of(nightly, now)[1] == expected, now
    day = AUTUMN.replace(hour=0)
    found, _ = calendars_of(nightly, AUTUMN)
    assert found == instants_of(nightly, day - 3 * DAY, day + 7 * DAY)
    assert len(found) == 10
    assert [(one.day_of_month, one.hour, one.minute) for one in found[2:5]] == [
        ((24,), (0,), (0, 30)),
        ((25,), (0,), (0, 30)),
        ((26,), (1,), (0, 30)),
    ]
    hourly = Timing(cron="15 * * * *", time_zone="Asia/Kolkata")
    ((one,), zone) = calendars_of(hourly, AUTUMN)
    assert (zone, one.minute, one.is_hourly) == ("UTC", (45,), True)
    assert calendars_of(Timing.model_validate({"interval": {"every": "1h"}}), AUTUMN) == ((), "UTC")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"cron": "0 12 29 2 *"}, ["2028-02-29T12:00", "2032-02-29T12:00"]),
        ({"cron": "0 0 13 * fri"}, ["2026-12-04T00:00", "2026-12-11T00:00", "2026-12-13T00:00"]),
        ({"cron": "0 0 30 2 *"}, []),
        ({"interval": {"every": "12h"}}, ["2026-12-01T00:00", "2026-12-01T12:00"]),
        ({"interval": {"every": "12h", "offset": "1h"}}, ["2026-11-30T13:00", "2026-12-01T01:00"]),
        ({"calendar": {"hour": "12", "year": "2027", "month": "jan"}}, ["2027-01-01T12:00"]),
        ({"cron": "@daily", "end_at": "2026-12-01T00:00Z"}, ["2026-12-01T00:00"]),
        ({"cron": "@daily", "start_at": "2026-12-24T00:00Z"}, ["2026-12-24T00:00"]),
        ({"cron": "@daily", "time_zone": BERLIN}, ["2026-12-01T00:00", "2026-12-02T00:00"]),
    ],
)
def test_the_next_times(fields: dict[str, Any], expected: list[str]) -> None:
    found = next_times(Timing(**fields), NOW, len(expected) or 1)
    assert [one.isoformat()[:16] for one in found] == expected


def test_times_are_in_order_each_once_and_both_ends_count() -> None:
    timing = Timing(cron="*/7 0,12 1,13 * mon", time_zone=NEW_YORK)
    times = list(islice(times_after(timing, AUTUMN_THERE - 3 * DAY), 500))
    assert times == sorted(set(times))
    assert times_between(timing, times[3], times[7], 100) == times[3:8]
    assert times_between(timing, times[3], times[7], 2) == times[3:5]


def test_only_the_hours_that_are_needed_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    hours: list[datetime] = []
    computed = schedule_times._times_of_hour

    def counted(calendar: Calendar, start: datetime) -> Iterator[datetime]:
        hours.append(start)
        return computed(calendar, start)

    monkeypatch.setattr(schedule_times, "_times_of_hour", counted)
    found = next_times(Timing(cron="* * * * mon", time_zone=BERLIN), NOW, 5)
    assert [one.isoformat()[11:16] for one in found] == [f"13:0{n}" for n in range(1, 6)]
    assert len(hours) <= 6, "a day has 1,440 times"


def test_rare_times_are_found_over_any_number_of_years() -> None:
    leap = Timing(cron="0 0 29 2 *")
    first = datetime(1970, 1, 1, tzinfo=UTC)
    found = times_between(leap, first, datetime(2100, 12, 31, tzinfo=UTC), 1000)
    assert [one.year for one in found] == list(range(2000, 2100, 4))


def test_the_instants_around_a_change_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[datetime] = []

    def counted(timing: Timing, first: datetime, last: datetime) -> list[Calendar]:
        del timing, last
        calls.append(first)
        return []

    monkeypatch.setattr(schedule_times, "instants_of", counted)
    timing = Timing(cron="59 23 * * mon", time_zone=BERLIN)
    for _ in range(3):  # each reconcile of the control worker asks again
        assert calendars_of(timing, AUTUMN) == ([], "UTC")
    assert len(calls) == 1
    schedule_times._instants_around.cache_clear()
