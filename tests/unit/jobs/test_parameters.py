from typing import Any

import pytest

from mitosis.contracts.errors import InvalidRequest, TooLarge
from mitosis.jobs.parameters import MAX_VALUE_BYTES, bind, check_size, parse_value
from mitosis.jobs.reading import definition_of

PARAMETERS: dict[str, Any] = {
    "date": {},
    "shards": {"type": "integer", "default": 4},
    "ratio": {"type": "number", "default": 0.5},
    "dry": {"type": "boolean", "default": False},
    "files": {"type": "list", "required": False},
    "options": {"type": "object", "default": {"a": 1}},
    "level": {"type": "string", "choices": ["low", "high"], "default": "low"},
}
JOB = definition_of(
    {"name": "job", "parameters": PARAMETERS, "steps": {"a": {"command": ["true"]}}}
)
DEFAULTS = {
    "shards": 4,
    "ratio": 0.5,
    "dry": False,
    "files": None,
    "options": {"a": 1},
    "level": "low",
}


def test_defaults_complete_what_is_given() -> None:
    assert bind(JOB, {"date": "x"}) == {"date": "x", **DEFAULTS}


def test_all_that_is_wrong_is_listed() -> None:
    given = {"shard": 1, "shards": True, "ratio": "1", "level": "mid", "files": "a"}
    with pytest.raises(InvalidRequest) as caught:
        bind(JOB, given)
    problems = {one["field"]: one["message"] for one in caught.value.facts["problems"]}
    assert problems == {
        "parameters.shard": "job has no such parameter; did you mean shards?",
        "parameters.date": "is required and has no default; give it with -p date=VALUE",
        "parameters.shards": "must be an integer, not a boolean",
        "parameters.ratio": "must be a number, not a string",
        "parameters.files": "must be a list, not a string",
        "parameters.level": "must be one of 'low', 'high'",
    }


def test_a_hundred_problems_are_listed_ten_of_them_with_a_hint() -> None:
    with pytest.raises(InvalidRequest) as caught:
        bind(JOB, {f"dat{n}": 1 for n in range(1000)})
    messages = [one["message"] for one in caught.value.facts["problems"]]
    assert len(messages) == 100
    assert sum("did you mean date?" in one for one in messages) == 10
    assert messages[-1] == "job has no such parameter"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("date", "2026-11-28", "2026-11-28"),
        ("date", "12", "12"),
        ("shards", "12", 12),
        ("ratio", "1e-3", 0.001),
        ("dry", "true", True),
        ("files", '["a", "b"]', ["a", "b"]),
        ("files", "null", None),
        ("options", "{}", {}),
    ],
)
def test_a_text_of_the_command_line_becomes_the_type_of_the_parameter(
    name: str, text: str, value: Any
) -> None:
    assert parse_value(JOB, name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("shards", "many", "must be an integer, not a string"),
        ("shards", "1.5", "must be an integer, not a number"),
        ("dry", "yes", "must be true or false, not a string"),
        ("files", "a b", "must be a list"),
        ("level", "mid", None),
        ("dat", "x", "did you mean date?"),
    ],
)
def test_a_text_that_is_not_of_the_type_is_refused(name: str, text: str, why: str | None) -> None:
    if why is None:
        assert parse_value(JOB, name, text) == text  # `bind` knows the choices
        return
    with pytest.raises(InvalidRequest, match=why):
        parse_value(JOB, name, text)


def test_a_value_of_one_megabyte_is_passed_and_a_larger_one_is_refused_with_what_to_do() -> None:
    assert check_size("x" * (MAX_VALUE_BYTES - 2), "a result", "result") == MAX_VALUE_BYTES
    with pytest.raises(TooLarge, match="put the data into a file or an object"):
        check_size("x" * (MAX_VALUE_BYTES - 1), "a result", "result")
    with pytest.raises(TooLarge, match="the parameters of a run"):
        bind(JOB, {"date": "é" * 500_000})
    with pytest.raises(InvalidRequest, match="JSON"):
        check_size(float("nan"), "a result", "result")
