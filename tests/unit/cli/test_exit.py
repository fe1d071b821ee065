"""One exit status for each class of error, the same for ever: scripts depend on the numbers."""

import pytest
import typer

from mitosis.cli.exit import OF_RESULT, ExitStatus, problem_document, report, status_of, text_lines
from mitosis.contracts import errors
from mitosis.contracts.lifecycle import TaskGroupResult

STABLE = {
    "OK": 0,
    "PROBLEM_FOUND": 1,
    "USAGE": 2,
    "TASKS_FAILED": 10,
    "CANCELLED": 11,
    "SETUP_FAILED": 12,
    "TEARDOWN_DEGRADED": 13,
    "INVALID": 65,
    "NOT_FOUND": 66,
    "UNAVAILABLE": 69,
    "INTERNAL": 70,
    "CONFLICT": 73,
    "OUTPUT_LOST": 74,
    "TRY_LATER": 75,
    "NOT_ALLOWED": 77,
    "CONFIGURATION": 78,
    "TIMED_OUT": 124,
    "INTERRUPTED": 130,
}


def test_statuses_are_stable() -> None:
    assert {status.name: int(status) for status in ExitStatus} == STABLE


def test_only_the_root_of_the_error_tree_is_an_internal_error() -> None:
    internal = [
        cls for cls in errors.BY_CODE.values() if status_of(cls.__new__(cls)) is ExitStatus.INTERNAL
    ]
    assert internal == [errors.MitosisError]


def test_every_result_of_a_group_has_its_own_status() -> None:
    assert set(OF_RESULT) == set(TaskGroupResult)
    assert len(set(OF_RESULT.values())) == len(TaskGroupResult)


def test_what_the_api_refused_is_explained_with_what_it_allows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = errors.InvalidTransition(
        subject="task group", state="open", event="reopen", allowed=["close", "cancel"]
    )
    assert report(refused, as_json=False) is ExitStatus.CONFLICT
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "error: a task group that is open does not allow reopen; it allows close, cancel\n"
    )
    document = problem_document(refused, ExitStatus.CONFLICT)
    assert document["allowed"] == ["close", "cancel"]
    assert document["code"] == "invalid_transition"


def test_a_field_without_an_option_is_named_all_the_same() -> None:
    error = errors.InvalidRequest("must be even", field="tasks[3].priority")
    assert text_lines(error) == ["error: tasks[3].priority: must be even"]


def test_a_hint_stands_on_a_line_of_its_own() -> None:
    error = errors.ApiUnavailable("nothing answers", hint="mitosis up")
    assert text_lines(error) == ["error: nothing answers", "  mitosis up"]


def test_usage_errors_are_of_typers_public_class() -> None:
    assert issubclass(typer.BadParameter, typer.TyperException)
