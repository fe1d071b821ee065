"""Bodies of the calls about schedules: each wrong field is named."""

from datetime import timedelta
from typing import Any

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedules import BackfillSchedule, CreateSchedule, Timing

CRON = {"cron": "@daily"}
DAY = "2026-11-28T00:00:00+01:00"


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"cron": "61 * * * *"}, "cron", "minute"),
        ({**CRON, "time_zone": "Europe/Berln"}, "time_zone", "did you mean Europe/Berlin?"),
        ({**CRON, "time_zone": "../etc/passwd"}, "time_zone", "there is no time zone"),
        ({"interval": {"every": "9s"}}, "interval.every", "at least 10 seconds"),
        ({"interval": {"every": "10.5s"}}, "interval.every", "a whole number of seconds"),
        ({"interval": {"every": "1h", "offset": "1h"}}, "interval.offset", "shorter than every"),
        ({"interval": {"every": "1h", "offset": "-1"}}, "interval.offset", "not a duration"),
        ({"calendar": {"second": "*"}}, "calendar.second", "one run in a minute"),
        ({"calendar": {"hour": "25"}}, "calendar.hour", "hour: '25'"),
        ({"calendar": {"year": "1999"}}, "calendar.year", "from 2000 to 2100"),
        ({"calendar": {"hours": "2"}}, "calendar.hours", "unknown field"),
        ({**CRON, "jitter": "2d"}, "jitter", "at most one day"),
        ({**CRON, "catch_up": "1s"}, "catch_up", "at least 10 seconds"),
        ({**CRON, "start_at": "2026-11-28T00:00:00"}, "start_at", "a time with its timezone"),
        ({**CRON, "overlap": "queue"}, "overlap", "allow_all"),
        ({**CRON, "version": 0}, "version", "a number from 1, or latest"),
        ({**CRON, "version": "last"}, "version", "a number from 1, or latest"),
        (
            {**CRON, "start_at": "0001-01-01T00:00:00+14:00"},
            "start_at",
            "in the years 1970 to 2100",
        ),
        ({**CRON, "end_at": "9999-12-31T23:59:59-14:00"}, "end_at", "in the years 1970 to 2100"),
        ({**CRON, "time_zone": "localtime"}, "time_zone", "there is no time zone"),
        ({"cron": "0-00000599999999999 * * * *"}, "cron", "no number from 0 to 59"),
        ({**CRON, "note": "a\u202eb"}, "note", "U+202E"),
    ],
)
def test_the_field_that_is_wrong_is_named(fields: Any, field: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        CreateSchedule(job="etl", **fields)
    assert (refused.value.facts["field"], says in str(refused.value)) == (field, True), (
        refused.value
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"first": DAY, "last": "2026-11-27T23:59:59+01:00"}, "last"),
        ({"first": DAY, "last": DAY, "overlap": Overlap.CANCEL_OTHER}, "overlap"),
        ({"first": "yesterday", "last": DAY}, "first"),
    ],
)
def test_a_backfill_is_refused_by_its_field(fields: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        BackfillSchedule(**fields)
    assert refused.value.facts["field"] == field


def test_a_timing_is_written_as_people_write_it() -> None:
    timings = (
        Timing(cron=" 30 2 * * * ", time_zone="Europe/Berlin"),
        Timing.model_validate({"interval": {"every": "90m", "offset": "10m"}}),
        Timing.model_validate({"calendar": {"hour": "2", "day_of_week": "mon"}}),
    )
    assert [one.text() for one in timings] == [
        "30 2 * * * Europe/Berlin",
        "every 1:30:00 + 0:10:00",
        "hour=2 day_of_week=mon UTC",
    ]
    assert timings[1].interval is not None
    assert timings[1].interval.every == timedelta(minutes=90)
