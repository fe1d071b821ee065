from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.contracts.errors import InvalidRequest
from mitosis.jobs.definition import Step
from mitosis.jobs.rendering import Values, argv_of, is_wanted, items_of, task_of
from tests.support.examples import examples

VALUES = Values(
    parameters={"date": "2026-11-28", "files": ["a b", "c;d"], "none": None, "n": 3},
    results={"prepare": {"rows": 7, "names": ["x", "y"]}, "many": [1, None, {"k": True}]},
    run={"id": "r-1"},
    job={"name": "pipeline", "version": 4},
    task={"index": 2, "count": 5},
    item={"path": "/data/1"},
)


@settings(max_examples=examples(20), deadline=None)
@given(st.text().filter(lambda text: "\0" not in text))
def test_any_text_becomes_exactly_one_element(text: str) -> None:
    """Quotes, spaces, semicolons, braces: nothing is split, expanded or parsed again."""
    values = Values(parameters={"x": text})
    assert argv_of(("run", "{{ params.x }}"), values) == ["run", text]
    assert argv_of(("run", "--x={{params.x}}!"), values) == ["run", f"--x={text}!"]


@pytest.mark.parametrize(
    ("word", "argv"),
    [
        ("{{ params.date }}", ["2026-11-28"]),
        ("{{ params.files }}", ["a b", "c;d"]),
        ("{{ params.none }}", []),
        ("{{ results.many[2] }}", ['{"k": true}']),
        ("x{{ params.n }}-{{ task.index }}/{{ task.count }}", ["x3-2/5"]),
        ("{{ results.prepare }}", ['{"rows": 7, "names": ["x", "y"]}']),
        ("{{ results.prepare.names[1] }}", ["y"]),
        ('{{ results.many[2]["k"] }}', ["true"]),
        ("{{ item.path }}", ["/data/1"]),
        ("{{ run.id }}:{{ job.name }}:{{ job.version }}", ["r-1:pipeline:4"]),
        ("{{ results.many }}", ["1", '{"k": true}']),
        ('{{ "{{" }}', ["{{"]),
    ],
)
def test_a_word_becomes_elements(word: str, argv: list[str]) -> None:
    assert argv_of(("run", word), VALUES) == ["run", *argv]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (
            "{{ results.prepare.row }}",
            "results.prepare.row has no value: results.prepare is an object without it",
        ),
        ("{{ results.many[3] }}", r"results.many\[3\] has no value"),
        ("{{ params.n.x }}", "params.n.x has no value: params.n is an integer"),
        ("-{{ params.files }}", "params.files is a list"),
        ("-{{ params.none }}", "params.none has no value"),
    ],
)
def test_a_reference_without_a_fitting_value_names_the_element(word: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        argv_of(("run", word), VALUES)
    assert caught.value.facts["field"] == "command[1]"


def test_a_task_has_all_fields_of_its_step() -> None:
    step = Step.model_validate(
        {
            "handler": "shop:measure",
            "arguments": {
                "files": "{{ params.files }}",
                "at": ["{{ task.index }}", "n={{ params.n }}"],
            },
            "environment": {"DATE": "{{ params.date }}"},
            "working_directory": "/data/{{ params.date }}",
            "retry": {"max_attempts": 3, "delay": "10s"},
            "task_timeout": "2m",
            "kill_grace_seconds": 1.5,
            "priority": 7,
        }
    )
    task = task_of(step, VALUES)
    assert task.arguments == {"files": ["a b", "c;d"], "at": [2, "n=3"]}
    assert task.environment == {"DATE": "2026-11-28"}
    assert task.working_directory == "/data/2026-11-28"
    assert (task.retry.max_attempts, task.retry.delay_seconds) == (3, 10.0)
    assert (task.timeout_seconds, task.kill_grace_seconds, task.priority) == (120.0, 1.5, 7)


@pytest.mark.parametrize(
    ("over", "items"),
    [
        ("params.files", ("a b", "c;d")),
        ("results of many", (1, None, {"k": True})),
        ("results.prepare.names", ("x", "y")),
        ([1, "b"], (1, "b")),
        (None, None),
    ],
)
def test_the_items_of_a_step(over: Any, items: Any) -> None:
    step = Step.model_validate({"handler": "m:f", "over": over})
    assert items_of(step, VALUES) == items


def test_items_that_are_no_list_are_refused() -> None:
    step = Step.model_validate({"handler": "m:f", "over": "results.prepare"})
    with pytest.raises(InvalidRequest, match=r"results.prepare must be a list, not an object"):
        items_of(step, VALUES)


def test_a_condition_decides_whether_a_step_is_wanted() -> None:
    def wanted(when: str | None) -> bool:
        return is_wanted(Step.model_validate({"handler": "m:f", "when": when}), VALUES)

    assert wanted(None)
    assert wanted("results.prepare.rows > 0")
    assert not wanted("results.prepare.rows > 7")
    with pytest.raises(InvalidRequest, match=r"results.prepare.row has no value"):
        wanted("results.prepare.row > 7")
