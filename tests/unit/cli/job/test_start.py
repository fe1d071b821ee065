"""`mitosis job start` and its siblings: what is wrong is refused before any server is asked."""

from pathlib import Path

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.cli.job.run_references import check_run
from mitosis.cli.job.start import as_file
from tests.support.command import mitosis

pytestmark = pytest.mark.usefixtures("no_stack_here")

ETL = "{name: etl, parameters: {n: {type: integer}}, steps: {a: {command: [x], count: '{{ params.n }}'}}}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "etl.yaml"
    path.write_text(ETL)
    return str(path)


@pytest.mark.parametrize(
    ("word", "is_file"),
    [
        ("etl", False),
        ("team/etl", False),
        ("00000000-0000-0000-0000-000000000007", False),
        ("etl.yaml", True),
        ("jobs/etl.yml", True),
        ("etl.json", True),
        ("./etl", True),
        ("/dev/fd/3", True),
        ("-", True),
    ],
)
def test_a_word_is_a_file_or_a_stored_job(word: str, is_file: bool) -> None:
    assert (as_file(word) is not None) == is_file


def test_a_dry_run_of_a_file_asks_no_server(file: str) -> None:
    ran = mitosis("job", "start", file, "--dry-run", "-p", "n=3")
    assert ran.status == ExitStatus.OK, ran.err
    assert ran.out.splitlines()[-1] == "1 steps, 3 tasks; 0 edges between steps, 0 between tasks"
    assert mitosis("job", "start", file, "--dry-run", "-p", "n=3", "--json").json["tasks"] == 3
    piped = mitosis("job", "start", "-", "--dry-run", "-p", "n=2", stdin=ETL)
    assert "2 tasks" in piped.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["start", "FILE", "--version", "1"], "--version: belongs to a stored job"),
        (["start", "etl", "--group", "team"], "--group: belongs to a file"),
        (["start", "FILE", "-p", "n=many"], "parameters.n: must be"),
        (["start", "FILE", "-p", "m=1"], "etl has no such parameter; the parameters are n"),
        (["start", "a/b/c"], "JOB: 'a/b/c' is not the id or name of a job"),
        (["start", "missing.yaml"], "cannot read missing.yaml"),
        (["watch", "last"], "RUN: 'last' is not a run; write its id, or @last"),
        (["cancel", "etl"], "RUN: 'etl' is not a run"),
        (["rerun", "../etl"], "RUN: '../etl' is not a run"),
        (["tasks", "7", "a"], "RUN: '7' is not a run"),
        (["show", "@first"], "JOB: '@first' is not the id or name of a job"),
    ],
)
def test_what_is_wrong_is_said_before_a_server_is_asked(
    words: list[str], why: str, file: str
) -> None:
    ran = mitosis("job", *(file if word == "FILE" else word for word in words))
    assert ran.status == ExitStatus.INVALID, ran.err
    assert why in ran.err


def test_a_run_is_an_id_or_the_last_one() -> None:
    assert check_run("@last") == "@last"
    assert check_run("00000000-0000-0000-0000-000000000007")
