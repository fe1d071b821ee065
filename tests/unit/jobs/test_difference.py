from copy import deepcopy
from typing import Any

from mitosis.jobs.difference import changes_between
from mitosis.jobs.reading import definition_of

JOB: dict[str, Any] = {
    "name": "j",
    "parameters": {"n": {"type": "integer", "default": 1}},
    "steps": {
        "a": {"command": ["run", "a b"], "retry": {"max_attempts": 2}},
        "b": {"handler": "m:f", "after": "a", "arguments": {"x": 1}},
    },
}


def texts(after: dict[str, Any]) -> list[str]:
    return [one.text() for one in changes_between(definition_of(JOB), definition_of(after))]


def test_every_kind_of_change_is_one_line() -> None:
    after = deepcopy(JOB)
    after["timeout"] = "1h"
    after["parameters"]["n"]["default"] = 2
    after["steps"]["a"] = {"command": ["run", "a", "b"], "priority": 3}
    after["steps"]["b"] |= {"after": {"a": "always"}, "arguments": {"x": True}}
    after["steps"]["c"] = {"command": ["true"], "after": "b"}
    assert texts(after) == [
        "timeout: null → 3600.0",
        "parameters.n.default: 1 → 2",
        'steps.c: added: {"command": ["true"], "after": {"b": "success"}}',
        "steps.a.command: run 'a b' → run a b",
        "steps.a.priority: 0 → 3",
        "steps.a.retry.max_attempts: 2 → 1",
        "steps.b.arguments.x: 1 → true",
        'steps.b.after.a: "success" → "always"',
    ]


def test_a_step_with_another_name_is_renamed() -> None:
    after = deepcopy(JOB)
    after["steps"]["last"] = after["steps"].pop("b")
    assert texts(after) == ["steps.b: renamed to last"]
    after["steps"]["last"]["arguments"] = {"x": True}  # in JSON, true is not 1
    assert [text.split(":")[1] for text in texts(after)] == [" removed", " added"]


def test_the_order_of_keys_is_no_change() -> None:
    one, other = deepcopy(JOB), deepcopy(JOB)
    one["steps"]["b"]["arguments"] = {"x": {"y": 1, "z": 2}}
    other["steps"]["b"]["arguments"] = {"x": {"z": 2, "y": 1}}
    assert changes_between(definition_of(one), definition_of(other)) == []


def test_an_edge_that_is_gone_is_removed() -> None:
    after = deepcopy(JOB)
    del after["steps"]["b"]["after"]
    assert texts(after) == ['steps.b.after.a: removed: "success"']
