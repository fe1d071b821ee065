"""Arbitrary texts for the times of a schedule: each ends soon, in few numbers, or is refused by its field."""

from datetime import UTC, datetime
from time import thread_time
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mitosis.contracts.calendars import CRON_FIELDS, Calendar, numbers
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.schedules import CreateSchedule, Timing
from mitosis.jobs.schedule_times import calendars_of, is_a_time, next_times, times_between

NOW, FAR = datetime(2026, 10, 24, 12, 0, 0, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
FIELDS = ("second", "minute", "hour", "day_of_month", "month", "year", "day_of_week")
SECONDS = 1.0
"""Of CPU time: a hundred times what the longest takes; a loop over a number of a text takes more."""

_number = st.one_of(
    st.integers(0, 70).map(str),
    st.integers(0, 10**12).map(str),
    st.sampled_from(["00000599999999999", "0" * 190, "9" * 190, "2000", "2100", "jan", "fri", ""]),
)
_part = st.builds(
    lambda first, last, step: first + last + step,
    st.one_of(st.just("*"), _number),
    st.one_of(st.just(""), _number.map(lambda one: f"-{one}")),
    st.one_of(st.just(""), _number.map(lambda one: f"/{one}")),
)
_field = st.one_of(
    st.just("*"),
    st.integers(0, 23).map(str),
    st.lists(_part, min_size=1, max_size=4).map(",".join),
    st.integers(1, 150).map(lambda count: ",".join("1" * count)),
    st.text(alphabet="0123456789*/,- ajnfri\u0663", max_size=210),
)
_zone = st.one_of(
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia"]),
    st.sampled_from(["../etc/passwd", "localtime", "Europe/Berln", "/", "\0", "x" * 100_000]),
    st.text(max_size=30),
)
_moment = st.one_of(
    st.none(),
    st.datetimes().map(lambda one: one.isoformat() + "Z"),
    st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]),
    st.text(max_size=20),
)
_span = st.one_of(
    st.integers(0, 10**6),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.sampled_from(
        ["1h30m", "1" * 1_000_000, "1" * 100_000 + "x", "9" * 400 + "d", "\u0663s", "90s"]
    ),
)
_times = st.one_of(
    st.fixed_dictionaries({"cron": st.lists(_field, min_size=5, max_size=5).map(" ".join)}),
    st.fixed_dictionaries({"cron": st.text(max_size=250)}),
    st.fixed_dictionaries({"calendar": st.dictionaries(st.sampled_from(FIELDS), _field)}),
    st.fixed_dictionaries({"interval": st.fixed_dictionaries({"every": _span, "offset": _span})}),
)


def _timing(fields: dict[str, Any]) -> Timing | InvalidRequest:
    try:
        given = CreateSchedule(job="etl", **fields)
    except InvalidRequest as refused:
        return refused
    names = ("cron", "interval", "calendar", "time_zone", "start_at", "end_at")
    return Timing(**{name: getattr(given, name) for name in names})


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(_times, _zone, _moment, _moment)
def test_texts_become_times_or_name_their_field(
    times: dict[str, Any], zone: str, start: str | None, end: str | None
) -> None:
    began = thread_time()
    fields = {**times, "time_zone": zone, "start_at": start, "end_at": end}
    timing = _timing(fields)
    if isinstance(timing, InvalidRequest):
        assert str(timing.facts["field"]).split(".", maxsplit=1)[0] in fields, timing
        assert len(str(timing)) < 500
    else:
        assert sum(_size(calendar) for calendar in timing.calendars) < 1000
        found = next_times(timing, NOW, 5)
        assert found == sorted(set(found))
        assert all(is_a_time(timing, one) for one in found)
        assert found[:1] == times_between(timing, NOW, FAR, 1)
        assert len(calendars_of(timing, NOW)[0]) < 2000
    assert thread_time() - began < SECONDS, fields


def _size(calendar: Calendar) -> int:
    return sum(len(getattr(calendar, name)) for name in FIELDS)


def _numbers(text: str, field: str) -> tuple[int, ...] | str:
    try:
        return numbers(text, field)
    except ValueError as error:
        return str(error)


@settings(deadline=None, max_examples=150)
@given(_field, st.sampled_from(CRON_FIELDS))
def test_a_field_of_any_length_is_bounded(text: str, field: str) -> None:
    found = _numbers(text, field)
    assert found.startswith(field) if isinstance(found, str) else len(found) <= 60
