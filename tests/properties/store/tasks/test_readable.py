"""Every value that a program gives is refused at the door, or every reader reads it back."""

import contextlib
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import given, settings
from msgspec import Raw

from mitosis.client.arguments import json_arguments
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.following import GroupEvent, OutputEvent
from mitosis.contracts.http import Page, ResultsPage, TaskInfo
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.task import TaskSubmission, encode_submission
from mitosis.contracts.wire import Outcome, TaskReport
from mitosis.ipc.messages import RunTask
from mitosis.store.tasks.readable import readable, storable
from mitosis.worker.report import Ended, ResultError, encode_report, encode_result
from tests.support.examples import examples
from tests.support.odd_values import odd_values, values

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def shown(spec: str, detail: str) -> TaskInfo:
    return TaskInfo(
        task_id=1,
        task_uuid=UUID(int=1),
        task_group_id=UUID(int=2),
        state=TaskState.SUCCEEDED,
        attempt=1,
        spec=readable(spec, "spec"),
        detail=readable(detail, "detail"),
        created_at=NOW,
    )


def read_by_all(task: TaskInfo) -> list[TaskInfo]:
    """Write the task into every answer, and read these with every reader."""
    listed = Page[TaskInfo](items=[task], next=None).model_dump_json()
    results = ResultsPage(items=[task], after=1, finished=True).model_dump_json()
    event = GroupEvent(kind="result", cursor=1, at=NOW, result=task).text()
    output = OutputEvent(kind="result", result=task).text()
    for text in (listed, results, event, output):
        assert json.loads(text) == msgspec.json.decode(text)
    found = [
        Page[TaskInfo].model_validate_json(listed).items[0],
        ResultsPage.model_validate_json(results).items[0],
    ]
    for back in (GroupEvent.model_validate_json(event), OutputEvent.model_validate_json(output)):
        assert back.result is not None
        found.append(back.result)
    return found


@settings(max_examples=examples(12))
@given(odd_values())
def test_a_result_is_refused_by_the_worker_or_every_reader_has_it(value: Any) -> None:
    try:
        data = encode_result(value)
    except ResultError:
        return
    report = encode_report(RunTask(AttemptKey(1, 1), b""), Ended(result=data), 0, (0,)).report
    sent = msgspec.json.decode(report, type=TaskReport)
    assert storable(sent) is sent
    for task in read_by_all(shown("{}", bytes(sent.detail).decode())):
        assert task.detail is not None
        assert task.detail["result"] == json.loads(json.dumps(value))


@settings(max_examples=examples(12))
@given(values())
def test_every_ordinary_result_is_storable(value: Any) -> None:
    assert json.loads(encode_result(value)) == value


@settings(max_examples=examples(12))
@given(odd_values())
def test_arguments_are_refused_or_every_reader_has_them(value: Any) -> None:
    kept: list[Any] = []
    with contextlib.suppress(InvalidRequest):
        kept.append(json_arguments("f", None, (value,), {}))
    with contextlib.suppress(InvalidRequest):
        task = TaskSubmission(handler="m:f", arguments=[value])
        kept.append(msgspec.json.decode(encode_submission(task, ""))["arguments"])
    for arguments in kept:
        spec = encode_submission(TaskSubmission(handler="m:f", arguments=arguments), "")
        for found in read_by_all(shown(spec.decode(), "{}")):
            assert found.spec["arguments"] == arguments


@settings(max_examples=examples(12))
@given(odd_values())
def test_a_report_of_another_program_becomes_readable(value: Any) -> None:
    try:
        text = json.dumps({"result": value, "stdout": "kept"}, allow_nan=False)
        spec = json.dumps({"handler": "m:f", "arguments": [value]})
    except (ValueError, RecursionError):
        return  # Python cannot write it
    sent = TaskReport(task_id=1, attempt=1, outcome=Outcome.SUCCEEDED, detail=Raw(text.encode()))
    got = storable(sent)
    for task in read_by_all(shown("{}", bytes(got.detail).decode())):
        assert task.detail is not None
        assert task.detail["stdout"] == "kept"
        assert ("result" in task.detail) == (got.outcome is Outcome.SUCCEEDED)
    for task in read_by_all(shown(spec, text)):  # a row that is stored already
        assert task.detail is not None
        assert (task.detail["stdout"], task.spec["handler"]) == ("kept", "m:f")
        assert ("result" in task.detail) != ("unreadable" in task.detail)
