"""What is wrong with a definition: each rule by one example, and many of them at once."""

from copy import deepcopy
from time import process_time
from typing import Any

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.jobs.reading import definition_of, examine

JOB: dict[str, Any] = {
    "name": "pipeline",
    "parameters": {
        "date": {},
        "files": {"type": "list", "required": False},
        "n": {"type": "integer"},
    },
    "groups": {"gpu": {"tags": ["gpu"]}},
    "steps": {
        "prepare": {"command": ["prepare", "{{ params.date }}"]},
        "measure": {"command": ["measure"], "count": 200, "after": "prepare"},
        "clean": {"command": ["clean"], "after": {"measure": "always"}},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The job with another value at a path such as ``steps.prepare.command``."""
    job = deepcopy(JOB)
    *parents, last = path.split("/")
    place = job
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return job


def problems(fields: Any) -> dict[str, str]:
    definition, found = examine(fields)
    assert (definition is None) == bool(found)
    return {one.field: one.message for one in found}


def test_the_job_is_right() -> None:
    assert problems(JOB) == {}
    assert definition_of(JOB).steps["measure"].after == {"prepare": "success"}


@pytest.mark.parametrize(
    ("path", "value", "field", "why"),
    [
        ("name", "a b", "name", "letters, digits"),
        ("nme", "x", "nme", "unknown field; did you mean name?"),
        ("steps", {}, "steps", "at least 1 item"),
        ("steps", [], "steps", "must be an object"),
        ("steps/x y", {"command": ["a"]}, "steps.x y", "letters, digits, underscores"),
        ("steps/prepare/env", {}, "steps.prepare.env", "it is called environment here"),
        ("steps/prepare/retries", 3, "steps.prepare.retries", "called retry: {max_attempts"),
        ("steps/prepare/retry", {"delay": "soon"}, "steps.prepare.retry.delay", "not a duration"),
        ("steps/prepare/retry", {"delays": 1}, "steps.prepare.retry.delays", "did you mean delay?"),
        ("steps/prepare/command", "make all", "steps.prepare.command", "there is no shell"),
        ("steps/prepare/command", ["x", 5], "steps.prepare.command[1]", "write it in quotes"),
        ("steps/prepare/command", [], "steps.prepare.command", "must name a program"),
        ("steps/prepare/command", ["a\0"], "steps.prepare.command[0]", "NUL"),
        ("steps/prepare/handler", "m:f", "steps.prepare", "exactly one of command, handler"),
        ("steps/prepare/arguments", [1], "steps.prepare.arguments", "put them into command"),
        (
            "steps/prepare/environment",
            {"MITOSIS_X": "1"},
            "steps.prepare.environment.MITOSIS_X",
            "set by",
        ),
        ("steps/prepare/environment", {"A=B": "1"}, "steps.prepare.environment.A=B", "variable"),
        ("steps/prepare/working_directory", "here", "steps.prepare.working_directory", "absolute"),
        ("steps/prepare/group", "gp", "steps.prepare.group", "did you mean gpu?"),
        ("steps/prepare/count", -1, "steps.prepare.count", "number of tasks"),
        ("steps/prepare/count", 1_000_001, "steps.prepare.count", "up to 1000000"),
        (
            "steps/prepare/count",
            "params.date",
            "steps.prepare.count",
            "of the type string, not integer",
        ),
        ("steps/prepare/over", "params.files", "steps.prepare.over", "may have no value"),
        ("steps/prepare/over", "params.date", "steps.prepare.over", "of the type string, not list"),
        ("steps/prepare/over", "task.index", "steps.prepare.over", "must be a list"),
        ("steps/measure/over", [1], "steps.measure.over", "not both"),
        ("steps/measure/max_failures", "101%", "steps.measure.max_failures", "share"),
        ("steps/measure/after", "prepar", "steps.measure.after.prepar", "did you mean prepare?"),
        ("steps/measure/after", {"prepare": "ok"}, "steps.measure.after.prepare", "'success'"),
        (
            "steps/more",
            {"command": ["x"], "count": 1, "after": {"measure": "each"}},
            "steps.more.count",
            "remove",
        ),
        (
            "steps/clean/after",
            {"prepare": "each"},
            "steps.clean.after.prepare",
            "one task and no array",
        ),
        ("steps/prepare/after", "prepare", "steps.prepare.after.prepare", "prepare → prepare"),
        (
            "steps/prepare/after",
            ["clean"],
            "steps.clean.after.measure",
            "clean → prepare → measure → clean",
        ),
        ("steps/clean/when", "results.clean == 1", "steps.clean.when", "does not come after clean"),
        ("steps/clean/when", "task.index > 1", "steps.clean.when", "differs from task to task"),
        ("steps/clean/when", "x", "steps.clean.when", "begins with x"),
        ("steps/clean/command", ["{{ item }}"], "steps.clean.command[0]", "needs over"),
        (
            "steps/clean/command",
            ["{{ params.dat }}"],
            "steps.clean.command[0]",
            "did you mean date?",
        ),
        ("steps/clean/command", ["{{ params.date.x }}"], "steps.clean.command[0]", "type string"),
        ("steps/clean/command", ["-{{ params.files }}"], "steps.clean.command[0]", "is a list"),
        (
            "steps/clean/command",
            ["{{ run.x }}"],
            "steps.clean.command[0]",
            "run.id or run.nominal_time",
        ),
        (
            "steps/clean/command",
            ["{{ results.mesure }}"],
            "steps.clean.command[0]",
            "mean measure?",
        ),
        (
            "steps/clean/command",
            ["/bin/bash", "-ec", "rm {{ params.date }}"],
            "steps.clean.command[2]",
            "program text",
        ),
        ("groups/gpu/standing", "x", "groups.gpu.standing", "remove tags"),
        ("groups/gpu/probe", {"command": ["x"]}, "groups.gpu.probe", "needs a setup"),
        (
            "groups/gpu/setup",
            {"command": ["{{ item }}"]},
            "groups.gpu.setup.command[0]",
            "hook may",
        ),
        ("groups/gpu/setup", {"command": []}, "groups.gpu.setup.command", "must name a program"),
        ("groups/gpu/plan", {"workers": 2}, "groups.gpu.plan.workers", "did you mean worker_"),
        ("parameters/date", {"type": "int"}, "parameters.date.type", "'integer'"),
        ("parameters/n", {"type": "integer", "default": "1"}, "parameters.n.default", "an integer"),
        ("parameters/date", {"choices": [1]}, "parameters.date.choices[0]", "type string"),
        ("parameters/date", {"choices": []}, "parameters.date.choices", "at least one"),
        (
            "parameters/date",
            {"required": True, "default": "x"},
            "parameters.date.required",
            "remove one",
        ),
        ("timeout", 0, "timeout", "longer than 0"),
        ("parameters/date", {"default": "{{ run.id }}"}, "parameters.date.default", "not replaced"),
        ("steps/prepare/over", [["{{ item }}"]], "steps.prepare.over[0][0]", "not replaced"),
        ("description", float("nan"), "description", "JSON"),
    ],
)
def test_each_rule_names_the_field_and_what_would_be_right(
    path: str, value: Any, field: str, why: str
) -> None:
    found = problems(changed(path, value))
    assert list(found) == [field]
    assert why in found[field]


def test_all_problems_are_found_at_once() -> None:
    job = changed("steps/prepare/comand", ["x"])
    job["steps"]["measure"]["count"] = "many"
    job["steps"]["clean"]["after"] = {"mesure": "always"}
    job["parameters"]["date"] = {"typ": "string"}
    job["timeout"] = "soon"
    assert set(problems(job)) == {
        "steps.prepare.comand",
        "steps.measure.count",
        "steps.clean.after.mesure",
        "parameters.date.typ",
        "timeout",
    }


def test_a_wrong_field_hides_no_problem_of_the_others() -> None:
    job = changed("steps/measure/retries", 3)
    job["steps"]["measure"] |= {"after": "prepar", "environment": {"A": "{{ params.dat }}"}}
    assert set(problems(job)) == {
        "steps.measure.retries",
        "steps.measure.after.prepar",
        "steps.measure.environment.A",
    }


def test_a_step_that_is_wrong_by_itself_hides_no_cycle_and_makes_no_other_name_unknown() -> None:
    job = changed("steps/clean/after", {"measure": "always", "prepare": "sometimes"})
    job["steps"]["last"] = {"command": ["x", "{{ results.clean }}"], "after": "clean"}
    job["steps"]["one"] = {"command": ["x"], "after": "two"}
    job["steps"]["two"] = {"command": ["x"], "after": "one"}
    assert set(problems(job)) == {"steps.clean.after.prepare", "steps.one.after.two"}


def test_the_error_lists_all_problems_as_text_and_as_facts() -> None:
    with pytest.raises(InvalidRequest) as caught:
        definition_of(changed("steps/prepare/comand", 1) | {"nam": 1})
    assert len(caught.value.facts["problems"]) == 2
    assert str(caught.value).count("\n") == 2


def test_secrets_are_not_shown() -> None:
    found = problems(changed("steps/prepare/environment", {"TOKEN": 123456}))
    assert "123456" not in str(found)


def test_what_follows_one_by_one_has_the_items_and_no_results_of_what_it_follows() -> None:
    job = changed("steps/more", {"command": ["x", "{{ item }}"], "after": {"listed": "each"}})
    job["steps"]["listed"] = {"command": ["x"], "over": ["a"], "after": "prepare"}
    assert problems(job) == {}
    job["steps"]["more"]["command"] = ["x", "{{ results.prepare }}"]
    assert problems(job) == {}
    job["steps"]["more"]["command"] = ["x", "{{ results.listed }}"]
    assert "listed has not ended then" in problems(job)["steps.more.command[1]"]


def test_what_follows_two_arrays_one_by_one_needs_the_same_tasks() -> None:
    job = changed("steps/both", {"command": ["x"], "after": {"measure": "each", "other": "each"}})
    job["steps"]["other"] = {"command": ["x"], "count": 200}
    assert problems(job) == {}
    job["steps"]["other"]["count"] = 201
    assert "may have different tasks" in problems(job)["steps.both.after.other"]


def test_the_first_ten_unknown_names_have_hints() -> None:
    step = {"command": ["x", *["{{ params.dat }}"] * 30], "after": [f"prepar{n}" for n in range(9)]}
    found = problems(changed("steps/last", step)).values()
    assert sum("; did you mean prepare?" in one for one in found) == 9
    assert sum("; did you mean date?" in one for one in found) == 1
    assert sum(one == "params.dat names no parameter" for one in found) == 29


@pytest.mark.parametrize("fields", [None, [], "x", 1])
def test_what_is_no_object_is_refused(fields: object) -> None:
    assert "must be an object" in problems(fields)[""]


def test_values_that_json_cannot_carry_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (float("inf"), loop, {1: 2}, object(), "\ud800", 10**4301):
        step = {"handler": "m:f", "arguments": {"x": value}}
        assert problems(changed("steps/prepare", step)), value
    step = {"handler": "m:f", "arguments": ["x" * 1_000_001]}
    assert "pass long lists as parameters" in problems(changed("steps/prepare", step))[""]


STEP = {"command": ["x"]}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"steps": {f"s{n}": STEP for n in range(40_000)}}, "steps"),
        ({"steps": {"a": STEP | {f"f{n}": 1 for n in range(20_000)}}}, "steps.a.f0"),
        ({"steps": {f"s{n}": {"cmd": []} for n in range(1000)}}, "steps.s0.cmd"),
        ({"steps": {"a": STEP | {"after": [f"s{n}" for n in range(20_000)]}}}, "steps.a.after.s0"),
        (
            {
                "parameters": {f"parameter{n}": {} for n in range(900)},
                "steps": {"a": {"command": ["x", *["{{ params.prameter }}"] * 20_000]}},
            },
            "steps.a.command[1]",
        ),
        ({"steps": {"a": {"command": ["x", "{{" + " " * 100_000]}}}, "steps.a.command[1]"),
        ({"steps": {"a": {"command": ["x", "{{ " * 30_000]}}}, "steps.a.command[1]"),
    ],
)
def test_a_definition_with_many_faults_costs_little(fields: dict[str, Any], field: str) -> None:
    """Each of these took minutes with a search for similar names, or one backtracking, for every fault."""
    begun = process_time()
    _, found = examine({"name": "j", **fields})
    assert found[0].field == field
    assert len(found) <= 100
    assert process_time() - begun < 5


def test_results_are_known_in_a_graph_with_many_edges() -> None:
    steps: dict[str, Any] = {
        f"s{n}": STEP | {"after": [f"s{m}" for m in range(n)]} for n in range(120)
    }
    steps["last"] = {
        "command": ["x", *[f"{{{{ results.s{n} }}}}" for n in range(120)]],
        "after": "s119",
    }
    assert problems({"name": "j", "steps": steps}) == {}


def test_braces_of_another_language_are_plain_text_in_a_default() -> None:
    assert problems(changed("parameters/date", {"default": "{{.Names}}"})) == {}
