"""The exit statuses of `mitosis run` and `mitosis watch`: one list, for words, help and reference."""

import typer

from mitosis.cli.exit import ExitStatus
from mitosis.cli.follow.exit_statuses import MEANING, RunExit, status_of_error
from mitosis.contracts import errors
from tests.support.command import mitosis
from tools.gen_errors import page

STABLE = {
    "OK": 0,
    "TASKS_FAILED": 1,
    "USAGE": 2,
    "COULD_NOT_RUN": 3,
    "UNREACHABLE": 4,
    "CANCELLED": 5,
    "NOT_FOUND": 66,
    "INTERNAL": 70,
    "CONFLICT": 73,
    "OUTPUT_LOST": 74,
    "TRY_LATER": 75,
    "NOT_ALLOWED": 77,
    "CONFIGURATION": 78,
    "DEADLINE": 124,
    "INTERRUPTED": 130,
}


def test_statuses_are_stable_and_each_has_a_meaning() -> None:
    assert {status.name: int(status) for status in RunExit} == STABLE
    assert list(MEANING) == list(RunExit)


def test_every_error_has_a_status_that_is_listed() -> None:
    found = {cls: status_of_error(cls.__new__(cls)) for cls in errors.BY_CODE.values()}
    assert found[errors.TooLarge] is found[errors.InvalidRequest] is RunExit.USAGE
    assert found[errors.QueueFull] is RunExit.UNREACHABLE
    for status in found.values():  # from 64 on the numbers mean the same everywhere
        assert status < 64 or ExitStatus(status).name == status.name


def test_help_and_reference_list_them_all() -> None:
    for command, missing in (("run", set()), ("watch", {RunExit.DEADLINE, RunExit.CONFLICT})):
        shown = " ".join(mitosis(command, "--help").out.split())
        listed = {status for status in RunExit if f" {status:d} {MEANING[status]}" in shown}
        assert listed == set(RunExit) - missing
    for status, text in MEANING.items():
        assert f"| {status:d} | `{status.name}` | {text} |" in page()


def test_json_says_the_status_with_which_it_ends() -> None:
    ran = mitosis("run", "--json", "--timeout", "0", "true")
    assert (ran.status, ran.problem["exit_status"]) == (RunExit.USAGE, RunExit.USAGE)
    assert ran.problem["option"] == "--timeout"


def test_usage_errors_of_typer_have_the_same_status() -> None:
    assert mitosis("run", "--no-such-option").status == RunExit.USAGE
    assert issubclass(typer.BadParameter, typer.TyperException)
