"""A function becomes a task with a name, its options, and a result of the type that it says."""

import functools
import math
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from mitosis.client.functions import remote_function
from mitosis.client.outcome import RemoteTraceback, TaskFailed
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.task import SubmittedTask, check_submission
from mitosis.handlers import handler


class Found(TypedDict):
    name: str
    size: int


@handler(timeout=timedelta(minutes=1), retries=2, retry_delay=3, labels=["a"])
def tuples(number: int) -> tuple[int, str]:
    return number, "x"


def numbered(number: int) -> dict[int, list[tuple[int, float]]]:
    return {number: [(1, 2.0)]}


def found(name: str) -> Found:
    return {"name": name, "size": 1}


def wrong() -> "tuple[int, NoSuchType]":  # type: ignore[name-defined]  # noqa: F821
    return (1, 2)


def unsure():  # type: ignore[no-untyped-def]
    return [1]


def liar() -> int:
    return "text"  # type: ignore[return-value]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@decorated
@handler
def hidden() -> None: ...


def task(function: Callable[..., Any], *args: Any, **options: Any) -> SubmittedTask:
    encoded = remote_function(function, (), options).task(args, {})  # type: ignore[arg-type]
    decoded = msgspec.json.decode(encoded, type=SubmittedTask)
    check_submission(decoded, "tasks[0]")
    return decoded


def ended(state: TaskState, **detail: Any) -> TaskInfo:
    some = uuid.uuid4()
    return TaskInfo(
        task_id=7,
        task_uuid=some,
        task_group_id=some,
        state=state,
        attempt=1,
        spec={"handler": "m:f"},
        kind=None if state is TaskState.SUCCEEDED else "handler_error",
        created_at=datetime.now(UTC),
        detail=detail,
    )


def result(function: Callable[..., Any], value: Any) -> Any:
    info = ended(TaskState.SUCCEEDED, result=msgspec.json.decode(msgspec.json.encode(value)))
    return remote_function(function, (), {}).result(info)


def test_the_task_has_the_name_the_arguments_and_the_options() -> None:
    made = task(tuples, 3, priority=4, timeout=2)
    assert (made.handler, made.arguments) == (f"{__name__}:tuples", [3])
    assert (made.timeout_seconds, made.priority, made.labels) == (2.0, 4, ["a"])
    assert (made.retry.max_attempts, made.retry.delay_seconds) == (3, 3.0)


def test_calls_do_not_share_their_arguments() -> None:
    remote = remote_function(tuples, (), {})
    first, second = remote.task((1,), {}), remote.task((2,), {})
    assert (b"[1]" in bytes(first), b"[2]" in bytes(second)) == (True, True)


def test_functions_of_others_are_tasks_too() -> None:
    assert task(math.sqrt, 4.0).handler == "math:sqrt"


def test_an_option_that_is_none_is_refused() -> None:
    with pytest.raises(
        InvalidRequest, match=r"priorty is not an option of a task; the options are .*priority"
    ):
        task(tuples, 1, priorty=3)


def test_a_function_behind_another_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="use @handler as its outermost decorator"):
        task(hidden.__wrapped__)  # type: ignore[attr-defined]


def test_results_have_the_type_that_the_function_says() -> None:
    assert result(tuples, (1, "x")) == (1, "x")
    assert result(numbered, {3: [(1, 2.0)]}) == {3: [(1, 2.0)]}
    assert result(found, {"name": "n", "size": 2}) == {"name": "n", "size": 2}


def test_a_function_that_says_nothing_or_the_wrong_thing_gives_what_json_gives() -> None:
    assert result(wrong, (1, 2)) == [1, 2]
    assert result(unsure, [1]) == [1]
    assert result(liar, "text") == "text"
    assert result(math.sqrt, 2.0) == 2.0


def test_a_failure_has_the_message_and_the_traceback_of_the_worker() -> None:
    info = ended(
        TaskState.FAILED, message="ValueError: no", traceback="Traceback …\nValueError: no"
    )
    with pytest.raises(TaskFailed) as failed:
        remote_function(tuples, (), {}).result(info)
    error = failed.value
    assert str(error) == "task 7 (m:f) failed: ValueError: no"
    assert error.task is info
    assert error.kind == "handler_error"
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "Traceback …" in str(error.__cause__)
