"""Jobs in Python come to the same definition as jobs in YAML, by the same checks."""

import sys
from datetime import timedelta
from enum import Enum
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from mitosis import AlreadyExists, InvalidRequest, Job, step
from mitosis.handlers import handler
from mitosis.jobs.loading import read_definition
from mitosis.jobs.reading import examine

HERE = __name__


@step(
    arguments={"date": "{{ params.date }}"},
    retry={"max_attempts": 3, "delay": timedelta(seconds=10)},
)
def prepare(date: str) -> list[int]:
    return [len(date)]


@step(
    after=prepare,
    over="results of prepare",
    arguments=["{{ item }}"],
    task_timeout=timedelta(minutes=2),
)
def measure(item: int) -> int:
    return item + 1


@step
def alone() -> None:
    """Run without arguments."""


def pipeline() -> Job:
    job = Job("pipeline", steps=[prepare, measure], parameters={"date": {}})
    publish = job.command("publish", ["./publish"], after=[measure], when="params.date != 'x'")
    job.task("mail", "shop/mail@1", after={publish: "failure", measure: "always"})
    return job


YAML = f"""\
name: pipeline
parameters: {{date: {{}}}}
steps:
  prepare:
    handler: {HERE}:prepare
    arguments: {{date: "{{{{ params.date }}}}"}}
    retry: {{max_attempts: 3, delay: 10s}}
  measure:
    handler: {HERE}:measure
    after: prepare
    over: results.prepare
    arguments: ["{{{{ item }}}}"]
    task_timeout: 2m
  publish:
    command: [./publish]
    after: measure
    when: params.date != 'x'
  mail:
    named_task: shop/mail@1
    after: {{publish: failure, measure: always}}
"""


def test_python_and_yaml_come_to_the_same_definition() -> None:
    assert pipeline().definition() == read_definition(YAML)
    assert read_definition(pipeline().to_yaml()) == read_definition(YAML)


def test_a_step_is_called_like_its_function() -> None:
    assert prepare("abc") == [3]
    assert measure(1) == 2
    assert alone.name == "alone"
    assert repr(measure) == f"<step measure: {HERE}:measure>"
    assert isinstance(measure, type(handler(len_of)))


@pytest.mark.parametrize(
    ("file", "spec", "handler"),
    [
        ("/work/my_flow.py", None, "my_flow:len_of"),
        ("/work/pkg/flow.py", "pkg.flow", "pkg.flow:len_of"),
        ("/work/pkg/__main__.py", "pkg.__main__", "pkg.__main__:len_of"),
        ("/work/my-flow.py", None, "give the file a name as in my_sweep.py"),
        (None, None, "in a notebook or at a prompt"),
    ],
)
def test_a_step_of_the_script_has_the_name_under_which_workers_import_it(
    file: str | None, spec: str | None, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ModuleType("__main__")
    script.__spec__ = None if spec is None else ModuleSpec(spec, None)
    if file is not None:
        script.__file__ = file
    monkeypatch.setitem(sys.modules, "__main__", script)
    monkeypatch.setattr(len_of, "__module__", "__main__")
    one = step(len_of)
    assert repr(one) == "<step len_of: __main__:len_of>"
    if ":" in handler:
        assert Job("j", steps=[one]).fields()["steps"]["len_of"]["handler"] == handler
        return
    with pytest.raises(InvalidRequest, match=handler):
        Job("j", steps=[one])
    assert Job("j").add(one, handler="work:len_of") == "len_of"


Loop = Enum("Loop", {"VALUE": list[Any]()})


def test_a_value_that_contains_itself_is_refused_with_its_field() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    Loop.VALUE.value.append(Loop.VALUE)
    for value in (loop, Loop.VALUE):
        job = Job("j")
        job.task("mail", "shop/mail@1", arguments=value)
        with pytest.raises(InvalidRequest, match="contains itself") as caught:
            job.definition()
        assert caught.value.facts["field"] == "steps.mail.arguments"
    with pytest.raises(InvalidRequest, match="every key must be a string"):
        Job("j", parameters={("a",): {}}).definition()


def len_of(text: str) -> int:
    return len(text)


def test_what_is_wrong_is_found_by_the_same_checks() -> None:
    job = pipeline()
    job.command("last", "make all", after="publsh", env={})
    _, problems = examine(job.fields())
    with pytest.raises(InvalidRequest) as caught:
        job.definition()
    listed = [one["message"] for one in caught.value.facts["problems"]]
    assert sorted(listed) == sorted(one.message for one in problems)
    assert any("there is no shell" in one for one in listed)
    assert any("it is called environment here" in one for one in listed)


def test_a_name_is_taken_once() -> None:
    job = pipeline()
    with pytest.raises(AlreadyExists, match="a step measure already"):
        job.add(measure)
    assert job.add(step(name="again")(len_of)) == "again"


def test_a_function_that_workers_cannot_import_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="lambda"):
        step(lambda: 1)
