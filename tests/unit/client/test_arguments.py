"""What a task carries to a function is exactly what was given, or nothing is submitted."""

import datetime
import enum
import math
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from mitosis.client.arguments import json_arguments
from mitosis.contracts.errors import InvalidRequest


def function(first: Any, second: Any = 2, *, third: Any = 3) -> None: ...


def rest(first: Any, /, *more: Any, third: Any = 3) -> None: ...


def carried(*args: Any, of: Any = function, **kwargs: Any) -> Any:
    return json_arguments(of.__name__, signature(of), args, kwargs)


def test_positions_stay_positions_and_keywords_make_all_of_them_names() -> None:
    assert carried(1) == [1]
    assert carried(1, 5) == [1, 5]
    assert carried(first=1) == {"first": 1}
    assert carried(1, third=4) == {"first": 1, "third": 4}
    assert carried(1, 2, 3, of=rest) == [1, 2, 3]


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Old(str, enum.Enum):  # noqa: UP042 - its str() is another one
    NEW = "new"


class Meters(float):
    pass


def test_subclasses_become_what_they_are_in_json() -> None:
    got = carried(Color.RED, {"level": (Level.HIGH, Old.NEW, Meters(1.5))})
    assert got == ["red", {"level": [3, "new", 1.5]}]
    level = got[1]["level"]
    assert [type(value) for value in level] == [int, str, float]


@dataclass
class Point:
    x: int


def looped() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Path("/x"), "is a pathlib.PosixPath; send str() of it"),
        (datetime.date(2026, 1, 1), "is a datetime.date; send .isoformat() of it"),
        (Point(1), "send dataclasses.asdict() of it"),
        (b"x", "is a bytes; send base64 text"),
        ({1, 2}, "is a set; send sorted() of it"),
        (object(), "is a object. What arguments can be: None, bool, int"),
        (math.nan, "is nan, which JSON does not have"),
        (-math.inf, "is -inf, which JSON does not have"),
        pytest.param(10**4300, "more than 4,300 digits", id="too long"),
        pytest.param(-(10**4299), "4,299 below zero", id="too long below zero"),
        ("a\0b", "NUL character"),
        ("\udcff", "lone surrogate"),
        ({1: 2}, "has the key 1: keys must be str"),
        (
            looped(),
            "nested deeper than 190 levels, more than every reader can read back, or contains",
        ),
    ],
)
def test_what_json_would_change_or_lose_is_refused_by_name(value: Any, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        carried(0, [1, {"a": value}])
    assert str(refused.value).startswith("argument second[1]['a']")
    assert why in str(refused.value)
    with pytest.raises(InvalidRequest, match=r"argument third"):
        carried(0, third=value)


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "function: missing a required argument: 'first'"),
        ((1, 2, 3), {}, "function: too many positional arguments"),
        ((1,), {"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        carried(*args, **kwargs)
    assert why in str(refused.value)


def test_keywords_beside_positions_without_a_name_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="positional-only"):
        carried(1, 2, of=rest, third=4)


def test_functions_that_python_knows_no_parameters_of_take_positions() -> None:
    assert json_arguments("f", None, (1, 2), {}) == [1, 2]
