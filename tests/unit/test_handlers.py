"""``@handler`` leaves a function as it is, and says at once what cannot be a task."""

import asyncio
import functools
import inspect
from typing import Any

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.handlers import Handler, handler


@handler
def area(width: int, height: float = 1.0) -> float:
    """Of a rectangle."""
    return width * height


@handler(timeout=60, retries=2)
async def later(number: int) -> int:
    return number + 1


class Shapes:
    @staticmethod
    def circle(radius: float) -> float:
        return 3 * radius**2

    def method(self) -> None: ...


def test_it_is_called_as_before() -> None:
    assert area(3, height=2.5) == 7.5
    assert asyncio.run(later(1)) == 2


def test_it_looks_as_before() -> None:
    assert (area.__name__, area.__doc__) == ("area", "Of a rectangle.")  # type: ignore[attr-defined]
    assert list(inspect.signature(area).parameters) == ["width", "height"]
    assert repr(area) == f"<handler {__name__}:area>"


def test_options_can_be_changed_for_one_use() -> None:
    urgent = later.options(priority=5, retries=0)
    assert urgent.task_options == {"timeout": 60, "retries": 0, "priority": 5}
    assert later.task_options == {"timeout": 60, "retries": 2}
    assert urgent.function is later.function


def test_a_static_method_has_a_name_too() -> None:
    assert isinstance(handler(Shapes.circle), Handler)


def _local() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x, "a lambda has no name"),
        (_local(), "is defined inside another function"),
        (Shapes().method, "is a method of an object"),
        (functools.partial(print, 1), "has no name by which workers could find it"),
        (3, "3 is not a function"),
    ],
)
def test_what_workers_cannot_find_is_refused(function: Any, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        handler(function)
    assert why in str(refused.value)
    assert "at module level" in str(refused.value)
