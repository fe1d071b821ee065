"""Arbitrary texts for the times of a schedule: each ends soon, in few numbers, or is refused by its field."""

import re
from time import thread_time
from typing import Any

import pytest

from mitosis.contracts.calendars import MOST_PARTS, numbers
from mitosis.contracts.duration import parse_duration
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.schedules import BackfillSchedule, CreateSchedule

SECONDS = 1.0
"""Of CPU time: a hundred times what the longest takes; a loop over a number of a text takes more."""


def test_a_number_is_read_whole_before_it_is_bounded() -> None:
    for text in ("0-00000599999999999", "0/00000599999999999", "000005999999", "9" * 5000):
        with pytest.raises(ValueError, match=r"^minute: "):
            numbers(text, "minute")
    with pytest.raises(ValueError, match=f"more than {MOST_PARTS} parts"):
        numbers(",".join("1" * (MOST_PARTS + 1)), "minute")


@pytest.mark.parametrize(
    "value",
    ["1" * 1_000_000, "1" * 100_000 + "x", 10**400, -(10**400), 1e308],
    ids=["digits", "no unit", "integer", "below zero", "float"],
)
def test_a_duration_of_any_length_is_refused_at_once(value: object) -> None:
    began = thread_time()
    with pytest.raises(ValueError, match=re.compile(r"is not a duration|is longer than")):
        parse_duration(value)
    assert thread_time() - began < SECONDS


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T00:00Z"]
)
@pytest.mark.parametrize("field", ["start_at", "end_at", "first", "last"])
def test_a_year_that_other_zones_lack_is_refused_by_its_field(moment: str, field: str) -> None:
    day = "2026-11-28T00:00:00Z"
    kind: Any = BackfillSchedule if field in ("first", "last") else CreateSchedule
    rest = {"first": day, "last": day} if kind is BackfillSchedule else {"job": "etl"}
    with pytest.raises(InvalidRequest, match="in the years 1970 to 2100") as refused:
        kind(**{**rest, field: moment})
    assert refused.value.facts["field"] == field
