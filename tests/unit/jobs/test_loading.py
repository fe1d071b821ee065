import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.jobs.loading import examine_text, read_definition

JOB = """\
name: pipeline
parameters:
  date: {type: sting}
steps:
  prepare:
    comand: [./prepare, "{{ params.date }}"]
  measure:
    command: [./measure, "{{ params.dat }}"]
    after:
      - prepare
      - prepaer
    count: 200
  measure:
    command: [x]
"""


def test_every_problem_has_file_line_and_column() -> None:
    file = "job.yaml"
    with pytest.raises(InvalidRequest) as caught:
        read_definition(JOB, file)
    head, *lines = str(caught.value).splitlines()
    assert head == f"{file} has 5 problems"
    places = [line.removeprefix(f"{file}:") for line in lines]
    assert [place.split(": ")[:2] for place in places] == [
        ["3:10", "parameters.date.type"],
        ["6:5", "steps.prepare.comand"],
        ["8:26", "steps.measure.command[1]"],
        ["11:9", "steps.measure.after.prepaer"],
        ["13:3", "steps.measure"],
    ]
    first = caught.value.facts["problems"][0]
    assert (first["line"], first["column"], first["field"]) == (3, 10, "parameters.date.type")


def test_a_text_without_problems_is_the_definition() -> None:
    text = b'{"name": "one", "steps": {"a": {"command": ["true"]}}}'
    assert read_definition(text).steps["a"].command == ("true",)


def test_a_key_that_is_given_twice_is_a_problem_by_itself() -> None:
    definition, problems = examine_text("name: a\nname: b\nsteps:\n  a:\n    command: [x]\n")
    assert definition is None
    assert [one.text() for one in problems] == [
        "2:1: name: is given twice, first in line 1; remove one"
    ]


def test_a_file_with_the_same_key_many_times_lists_a_hundred_of_them() -> None:
    _, problems = examine_text("name: a\nsteps:\n" + "  s: {command: [x]}\n" * 5_000)
    assert [one.place for one in problems] == [(line, 3) for line in range(4, 104)]
