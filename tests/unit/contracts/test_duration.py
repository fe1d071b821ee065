"""Durations as people write them."""

from datetime import timedelta

import pytest

from mitosis.contracts.duration import parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        (0.25, 0.25),
        ("90", 90),
        ("90s", 90),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        (timedelta(minutes=2), 120),
    ],
)
def test_a_duration_as_people_write_it(written: object, seconds: float) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize("wrong", ["", "soon", "10x", "1h30", "-5s", True, None, [1]])
def test_what_is_not_a_duration(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; write seconds or text like 90s"):
        parse_duration(wrong)
