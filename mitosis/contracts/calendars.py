"""Cron expressions and calendars: texts such as ``*/15`` as the numbers that they stand for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
YEARS = (2000, 2100)
MOST_DIGITS = 6
MOST_PARTS = 100
"""Numbers, ranges and steps of one field, with commas between them."""
CRON_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_BOUNDS: dict[str, tuple[int, int]] = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day of month": (1, 31),
    "month": (1, 12),
    "year": YEARS,
    "day of week": (0, 7),
}
_NAMES: dict[str, tuple[Sequence[str], int]] = {"month": (MONTHS, 1), "day of week": (DAYS, 0)}
ALL_HOURS = tuple(range(24))
ALL_DAYS = tuple(range(1, 32))
ALL_MONTHS = tuple(range(1, 13))
ALL_WEEKDAYS = tuple(range(7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Times whose every field is one of these numbers, in rising order; no years: any year."""

    second: tuple[int, ...] = (0,)
    minute: tuple[int, ...] = (0,)
    hour: tuple[int, ...] = (0,)
    day_of_month: tuple[int, ...] = ALL_DAYS
    month: tuple[int, ...] = ALL_MONTHS
    year: tuple[int, ...] = ()
    day_of_week: tuple[int, ...] = ALL_WEEKDAYS
    """0 is Sunday."""

    @property
    def is_hourly(self) -> bool:
        """Whether every hour of every day has the same times."""
        days = (self.day_of_month, self.month, self.year, self.day_of_week)
        return self.hour == ALL_HOURS and days == (ALL_DAYS, ALL_MONTHS, (), ALL_WEEKDAYS)


def parse_cron(text: str) -> tuple[Calendar, ...]:
    """Return the calendars of a cron expression; a time of any of them counts.

    As in cron, a day that matches one of day of month and day of week counts if neither begins with ``*``.
    Source: crontab(5).

    Raises:
        ValueError: says what is wrong with which field.
    """
    fields = MACROS.get(text.strip().lower(), text).split()
    if len(fields) != len(CRON_FIELDS):
        raise ValueError(
            f"{text!r:.60} must have five fields, {', '.join(CRON_FIELDS)}, or be one of"
            f" {', '.join(MACROS)}"
        )
    minute, hour, month_day, month, weekday = fields
    common = {
        "minute": numbers(minute, "minute"),
        "hour": numbers(hour, "hour"),
        "month": numbers(month, "month"),
    }
    days = numbers(month_day, "day of month")
    weekdays = numbers(weekday, "day of week")
    if month_day.startswith("*") or weekday.startswith("*"):
        return (Calendar(**common, day_of_month=days, day_of_week=weekdays),)
    return (Calendar(**common, day_of_month=days), Calendar(**common, day_of_week=weekdays))


def numbers(text: str, field: str) -> tuple[int, ...]:
    """Return the numbers that a field such as ``1-5,10`` or ``*/15`` stands for.

    Raises:
        ValueError: names the field, and what would be right.
    """
    parts = text.split(",", MOST_PARTS)
    if len(parts) > MOST_PARTS:
        raise ValueError(f"{field}: more than {MOST_PARTS} parts")
    found: set[int] = set()
    for part in parts:
        found.update(_range(part.strip(), field, text))
    if field == "day of week":
        found = {number % 7 for number in found}
    return tuple(sorted(found))


def _range(part: str, field: str, text: str) -> range:
    lowest, highest = _BOUNDS[field]
    bounds, slash, steps = part.partition("/")
    step = _number(steps, field, text, (1, highest)) if slash else 1
    if bounds == "*":
        return range(lowest, min(highest, 6 if field == "day of week" else highest) + 1, step)
    first, dash, last = bounds.partition("-")
    start = _number(first, field, text, (lowest, highest), named=True)
    if dash:
        stop = _number(last, field, text, (lowest, highest), named=True)
        if stop < start:
            raise ValueError(f"{field}: {text!r:.60} has a range that ends before it begins")
    else:
        stop = highest if slash else start
    return range(start, stop + 1, step)


def _number(
    word: str, field: str, text: str, bounds: tuple[int, int], *, named: bool = False
) -> int:
    names, first = _NAMES.get(field, ((), 0)) if named else ((), 0)
    if word.lower() in names:
        return list(names).index(word.lower()) + first
    if word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS:
        number = int(word)
        if bounds[0] <= number <= bounds[1]:
            return number
    also = f", or {names[0]} to {names[-1]}" if names else ""
    raise ValueError(
        f"{field}: {text!r:.60} has {word!r:.20}, which is no number from {bounds[0]} to"
        f" {bounds[1]}{also}"
    )
