"""What a worker service claims, as a slot takes it; what a slot reports, as the API takes it."""

import json
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Raw

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.named_tasks import TaskName
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.run_spec import RunSpec
from mitosis.contracts.service_tasks import NamedTaskAttempt
from mitosis.contracts.wire import Outcome, TaskReport
from mitosis.contracts.worker_services import SupportedTask
from mitosis.ipc.messages import EncodedReport
from mitosis.worker_service.attempts import Groups, claimed, held, named_report, not_executed
from mitosis.worker_service.targets import Target

NAME = TaskName("images", "resize", "1.4.0")
SUPPORTED = SupportedTask.model_validate(NAME._asdict())


def attempt(group: int = 7, task: int = 11, number: int = 1, **spec: Any) -> NamedTaskAttempt:
    fields = {"named_task": "images/resize@1.4.0", "priority": 3, "retry": {"max_attempts": 2}}
    return NamedTaskAttempt(
        task_id=task_uuid(group, task),
        attempt=number,
        task_group_id=uuid4(),
        task_group_name="thumbnails",
        **NAME._asdict(),
        spec=Raw(json.dumps(fields | spec).encode()),
        configuration=Raw(b'{"size":300}'),
        configuration_version=2,
    )


def run_spec(given: NamedTaskAttempt, target: Target) -> RunSpec:
    task = claimed(given, Groups().note(given), {NAME: target}, "/srv")
    return msgspec.json.decode(task.spec, type=RunSpec)


def test_a_handler_gets_the_arguments_and_the_options_of_the_task() -> None:
    given = attempt(
        arguments={"file": "a.png"},
        timeout_seconds=9,
        environment={"LANG": "C"},
        stream_output=True,
    )
    made = run_spec(given, Target(SUPPORTED, handler="shop.images:resize"))
    assert (made.handler, made.arguments) == ("shop.images:resize", {"file": "a.png"})
    assert (made.timeout_seconds, made.environment, made.working_directory) == (
        9,
        {"LANG": "C"},
        None,
    )
    assert (made.command, made.input, made.stream_output) == (None, None, False)


def test_an_attempt_has_its_own_group_and_configuration_in_its_variables() -> None:
    given = attempt()
    variables = run_spec(given, Target(SUPPORTED, handler="shop:resize")).variables
    assert variables == {
        "MITOSIS_TASK_UUID": str(given.task_id),
        "MITOSIS_TASK_GROUP_UUID": str(given.task_group_id),
        "MITOSIS_TASK_GROUP_NAME": "thumbnails",
        "MITOSIS_NAMED_TASK": "images/resize@1.4.0",
        "MITOSIS_CONFIGURATION": '{"size":300}',
        "MITOSIS_CONFIGURATION_VERSION": "2",
    }


def test_a_command_reads_the_whole_attempt_in_the_folder_of_the_service() -> None:
    given = attempt(arguments=[1])
    made = run_spec(given, Target(SUPPORTED, command=("/bin/resize", "--fast")))
    assert (made.command, made.working_directory) == (["/bin/resize", "--fast"], "/srv")
    read = json.loads(made.input or "")
    assert (read["spec"]["arguments"], read["configuration"]) == ([1], {"size": 300})
    assert (read["task_id"], read["attempt"]) == (str(given.task_id), 1)
    assert made.arguments is None


def test_a_command_starts_where_its_task_says() -> None:
    made = run_spec(attempt(working_directory="/data"), Target(SUPPORTED, command=("/bin/x",)))
    assert made.working_directory == "/data"


def test_held_names_what_runs_and_what_waits_for_an_answer_once() -> None:
    groups = Groups()
    running = [groups.note(attempt(group, task)) for group, task in ((7, 11), (8, 12))]
    pending = [(7, running[0]), (9, AttemptKey(13, 2))]
    assert [(one.task_id, one.attempt) for one in held(groups, running, pending)] == [
        (task_uuid(7, 11), 1),
        (task_uuid(8, 12), 1),
        (task_uuid(9, 13), 2),
    ]


def test_a_group_is_forgotten_with_its_last_attempt() -> None:
    groups = Groups()
    kept, left = groups.note(attempt(7, 11)), groups.note(attempt(8, 12))
    groups.keep([kept])
    assert groups.number(kept) == 7
    assert held(groups, [kept], ()) != ()
    try:
        groups.number(left)
    except KeyError:
        return
    raise AssertionError("the group of an attempt that is not held is still known")


def test_reports_are_sent_by_group() -> None:
    groups = Groups()
    keys = [groups.note(attempt(group, task)) for group, task in ((8, 1), (7, 2), (8, 3))]
    reports = [not_executed(key, FailureKind.CANCELLED, "over") for key in keys]
    found = groups.by_number(reports)
    assert [(number, [one.key.task_id for one in of]) for number, of in found] == [
        (7, [2]),
        (8, [1, 3]),
    ]


def test_a_report_keeps_all_that_the_slot_said() -> None:
    report = TaskReport(
        task_id=11,
        attempt=3,
        outcome=Outcome.FAILED,
        kind=FailureKind.EXIT_CODE,
        exit_code=4,
        started_at=1.0,
        finished_at=2.0,
        detail=Raw(b'{"stderr":"x"}'),
    )
    sent = named_report(7, EncodedReport.of(report).report)
    assert sent.task_id == task_uuid(7, 11)
    for name in ("attempt", "outcome", "kind", "exit_code", "signal", "started_at", "finished_at"):
        assert getattr(sent, name) == getattr(report, name)
    assert bytes(sent.detail) == b'{"stderr":"x"}'


def test_what_is_not_executed_says_why() -> None:
    key = AttemptKey(11, 1)
    cancelled = named_report(7, not_executed(key, FailureKind.CANCELLED, "over").report)
    assert (cancelled.outcome, cancelled.kind) == (Outcome.CANCELLED, FailureKind.CANCELLED)
    failed = named_report(7, not_executed(key, FailureKind.NOT_STARTED, "unknown").report)
    assert (failed.outcome, bytes(failed.detail)) == (Outcome.FAILED, b'{"message":"unknown"}')
