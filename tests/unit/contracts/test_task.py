"""What a task may be."""

import msgspec
import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.task import SubmittedTask, check_submission


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
        ({"command": ["a"], "environment": {"": "x"}}, "tasks[0].environment.", "must be a valid"),
        (
            {"command": ["a"], "environment": {"A=": "x"}},
            "tasks[0].environment.A=",
            "must be a valid",
        ),
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
