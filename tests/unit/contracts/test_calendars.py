"""Cron expressions and fields of calendars as numbers, and what is refused."""

import re

import pytest

from mitosis.contracts.calendars import ALL_DAYS, ALL_WEEKDAYS, numbers, parse_cron


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("*/15", "minute", (0, 15, 30, 45)),
        ("50/5", "minute", (50, 55)),
        ("1-5,10", "hour", (1, 2, 3, 4, 5, 10)),
        ("1-9/4", "hour", (1, 5, 9)),
        ("mon-FRI", "day of week", (1, 2, 3, 4, 5)),
        ("7", "day of week", (0,)),
        ("fri-7", "day of week", (0, 5, 6)),
        ("*", "day of week", ALL_WEEKDAYS),
        ("jan,12", "month", (1, 12)),
        ("*", "day of month", ALL_DAYS),
    ],
)
def test_a_field_stands_for_numbers(text: str, field: str, expected: tuple[int, ...]) -> None:
    assert numbers(text, field) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("61 * * * *", "minute: '61'"),
        ("* 24 * * *", "hour: '24'"),
        ("* * 0 * *", "day of month: '0'"),
        ("* * * 13 *", "month: '13'"),
        ("* * * * 8", "day of week: '8'"),
        ("* * * * fry", "or sun to sat"),
        ("* * * mon *", "or jan to dec"),
        ("*/0 * * * *", "minute: '*/0'"),
        ("5-1 * * * *", "ends before it begins"),
        ("1,,2 * * * *", "has ''"),
        ("* * L * *", "day of month: 'L'"),
        ("-1 * * * *", "has ''"),
        ("\u0663 * * * *", "which is no number"),
        ("* * * *", "must have five fields"),
        ("0 0 2 * * *", "must have five fields"),
        ("@noon", "@daily"),
        ("", "must have five fields"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_cron(text)


def test_days_of_month_and_week_count_both_if_both_are_given() -> None:
    """Source: crontab(5)."""
    days, weekdays = parse_cron("0 0 13 * fri")
    assert (days.day_of_month, days.day_of_week) == ((13,), ALL_WEEKDAYS)
    assert (weekdays.day_of_month, weekdays.day_of_week) == (ALL_DAYS, (5,))
    (both,) = parse_cron("0 0 */2 * fri")
    assert (len(both.day_of_month), both.day_of_week) == (16, (5,))


def test_only_a_calendar_of_every_hour_and_day_is_hourly() -> None:
    hourly = [parse_cron(text)[0].is_hourly for text in ("@hourly", "*/5 * * * *")]
    others = [
        parse_cron(text)[0].is_hourly for text in ("0 1-23 * * *", "0 * * * mon", "0 * 1 * *")
    ]
    assert (hourly, others) == ([True] * 2, [False] * 3)
