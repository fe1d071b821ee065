"""Durations, public task ids, error classes, and what a task may be."""

from datetime import timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts import errors
from mitosis.contracts.duration import parse_duration
from mitosis.contracts.errors import BY_CODE, InvalidRequest, MitosisError
from mitosis.contracts.ids import parse_task_uuid, task_uuid
from mitosis.contracts.task import SubmittedTask, check_submission


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


@given(group=st.integers(0, 2**48 - 1), task=st.integers(0, 2**63 - 1))
def test_a_task_uuid_carries_group_and_task(group: int, task: int) -> None:
    public = task_uuid(group, task)
    assert public.version == 8
    assert public.variant == "specified in RFC 4122"
    assert parse_task_uuid(public) == (group, task)


@given(group=st.integers(0, 2**48 - 1), tasks=st.sets(st.integers(0, 2**63 - 1), min_size=2))
def test_task_uuids_of_a_group_sort_as_its_tasks(group: int, tasks: set[int]) -> None:
    ordered = sorted(tasks)
    assert sorted(task_uuid(group, task) for task in tasks) == [
        task_uuid(group, task) for task in ordered
    ]


def test_another_uuid_is_not_a_task() -> None:
    with pytest.raises(ValueError, match="is not the id of a task"):
        parse_task_uuid(uuid4())
    with pytest.raises(ValueError, match="must be in"):
        task_uuid(2**48, 1)
    with pytest.raises(ValueError, match="must be in"):
        task_uuid(1, -1)
    assert isinstance(task_uuid(1, 1), UUID)


def test_error_codes_are_unique_and_in_the_tree_of_the_docstring() -> None:
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type)]
    ours = [cls for cls in classes if issubclass(cls, MitosisError)]
    assert len({cls.code for cls in ours}) == len(ours)
    for cls in ours:
        assert cls.__name__ in (errors.__doc__ or ""), cls
        assert BY_CODE[cls.code] is cls
        assert cls.__doc__


def test_the_docstring_is_the_default_message() -> None:
    assert str(errors.AlreadyExists()) == "The name is taken."
    assert errors.AlreadyExists("taken", name="x", other=None).facts == {"name": "x"}


def submission(**fields: object) -> SubmittedTask:
    return msgspec.convert(fields, SubmittedTask)


@pytest.mark.parametrize(
    "good",
    [
        {"command": ["true"]},
        {"command": ["sh", "-c", "exit 3"], "environment": {"A": "b"}, "working_directory": "/"},
        {"handler": "package.module:Class.method", "arguments": {"x": 1}},
        {"handler": "module:function", "timeout_seconds": 1.5, "dedup_key": "k"},
    ],
)
def test_good_tasks(good: dict[str, object]) -> None:
    check_submission(submission(**good), "tasks[0]")


@pytest.mark.parametrize(
    ("bad", "field", "says"),
    [
        ({}, "tasks[0]", "exactly one of command and handler"),
        ({"command": ["a"], "handler": "m:f"}, "tasks[0]", "exactly one"),
        ({"command": []}, "tasks[0].command", "must name a program"),
        ({"command": [""]}, "tasks[0].command", "must name a program"),
        ({"command": ["a", "\0"]}, "tasks[0].command[1]", "NUL"),
        ({"command": ["a"], "arguments": [1]}, "tasks[0].arguments", "belong to a handler"),
        ({"handler": "no_colon"}, "tasks[0].handler", "module:function"),
        ({"handler": "m:"}, "tasks[0].handler", "module:function"),
        ({"handler": "../m:f"}, "tasks[0].handler", "module:function"),
        ({"command": ["a"], "environment": {"": "x"}}, "tasks[0].environment.", "usable"),
        ({"command": ["a"], "environment": {"A=": "x"}}, "tasks[0].environment.A=", "usable"),
        ({"command": ["a"], "environment": {"MITOSIS_X": ""}}, None, "set by Mitosis"),
        ({"command": ["a"], "working_directory": "x"}, "tasks[0].working_directory", "absolute"),
        ({"command": ["a"], "dedup_key": ""}, "tasks[0].dedup_key", "1 to 200 bytes"),
        ({"command": ["a"], "dedup_key": "ä" * 101}, "tasks[0].dedup_key", "1 to 200 bytes"),
    ],
)
def test_bad_tasks_name_the_field(bad: dict[str, object], field: str | None, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        check_submission(submission(**bad), "tasks[0]")
    if field is not None:
        assert caught.value.facts["field"] == field


@pytest.mark.parametrize(
    "bad",
    [
        {"comand": ["a"]},
        {"command": "a"},
        {"timeout_seconds": 0},
        {"timeout_seconds": float("nan")},
        {"timeout_seconds": 1e300},
        {"timeout_seconds": float("inf")},
        {"kill_grace_seconds": 1e300},
        {"priority": 2**31},
    ],
)
def test_tasks_of_the_wrong_shape_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        submission(**bad)
