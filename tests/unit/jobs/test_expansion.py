import tracemalloc
from typing import Any

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.jobs.expansion import count_of, expand, tasks_of
from mitosis.jobs.reading import definition_of
from mitosis.jobs.rendering import Values


def test_each_task_of_an_array_has_its_index_and_its_item() -> None:
    steps = {
        "a": {
            "command": ["x", "{{ task.index }}/{{ task.count }}", "{{ item }}"],
            "over": "params.files",
        },
        "b": {"command": ["y", "{{ task.index }}", "{{ item.path }}"], "over": [{"path": "p"}]},
        "c": {"handler": "m:f", "arguments": ["{{ item }}"], "after": {"a": "each"}},
    }
    job = definition_of({"name": "j", "parameters": {"files": {"type": "list"}}, "steps": steps})
    values = Values(parameters={"files": ["f", "g"]})
    assert [task.command for task in tasks_of(job, "a", values)] == [
        ["x", "0/2", "f"],
        ["x", "1/2", "g"],
    ]
    assert [task.command for task in tasks_of(job, "b", values)] == [["y", "0", "p"]]
    assert [task.arguments for task in tasks_of(job, "c", values, [1])] == [["g"]]
    assert [task.arguments for task in tasks_of(job, "c", values, [0])] == [["f"]]


def test_what_depends_on_results_is_open_until_they_are_there() -> None:
    steps = {
        "list": {"handler": "m:list"},
        "each": {"command": ["x", "{{ item }}"], "over": "results of list", "after": "list"},
        "then": {"command": ["y"], "after": {"each": "each"}},
        "some": {"command": ["z"], "count": "{{ results.list[0] }}", "after": "list"},
    }
    job = definition_of({"name": "j", "steps": steps})
    found = {step.name: step for step in expand(job, {}).steps}
    assert [found[n].tasks for n in steps] == [1, None, None, None]
    assert found["then"].tasks_from == "results.list"
    assert not expand(job, {}).is_complete
    values = Values(results={"list": [4, "b"]})
    assert [count_of(job, name, values) for name in steps] == [1, 2, 2, 4]
    for wrong in ({"rows": 1}, ["x"]):
        with pytest.raises(InvalidRequest, match=r"must be a list|number of tasks|no value"):
            [count_of(job, name, Values(results={"list": wrong})) for name in ("each", "some")]


def test_a_number_of_tasks_that_is_not_allowed_is_refused() -> None:
    steps = {"a": {"command": ["x"], "count": "params.n"}}
    job = definition_of({"name": "j", "parameters": {"n": {"type": "integer"}}, "steps": steps})
    assert expand(job, {"n": 0}).known_tasks == 0
    for wrong in (-1, 1_000_001):
        with pytest.raises(InvalidRequest, match="a number of tasks up to 1000000"):
            expand(job, {"n": wrong})


def test_a_million_tasks_are_counted_without_being_made() -> None:
    steps: dict[str, Any] = {"s0": {"command": ["x", "{{ task.index }}"], "count": 1_000_000}}
    steps |= {f"s{n}": {"command": ["y"], "after": {f"s{n - 1}": "each"}} for n in range(1, 100)}
    job = definition_of({"name": "j", "steps": steps})
    tracemalloc.start()
    try:
        expansion = expand(job, {})
        last = next(tasks_of(job, "s0", Values(), [999_999]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (expansion.known_tasks, expansion.task_edges) == (100_000_000, 99_000_000)
    assert last.command == ["x", "999999"]
    assert peak < 2_000_000


def test_a_task_that_cannot_be_made_names_its_step() -> None:
    steps = {"a": {"handler": "m:f"}, "b": {"command": ["x", "{{ results.a.k }}"], "after": "a"}}
    job = definition_of({"name": "j", "steps": steps})
    with pytest.raises(InvalidRequest) as caught:
        list(tasks_of(job, "b", Values(results={"a": 1})))
    assert caught.value.facts["field"] == "steps.b.command[1]"
