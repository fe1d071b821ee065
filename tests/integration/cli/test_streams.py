"""Standard streams that are closed or full: no traceback, no file in their place, a status that is true."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain, combinations
from pathlib import Path

import pytest

from tests.support.program import MITOSIS, clean_environment, prepared_mitosis

SUBSETS = [*chain.from_iterable(combinations((0, 1, 2), n) for n in (1, 2, 3))]
OPENS_A_FILE = """
import os, sys
from mitosis.cli.streams import open_standard_streams
open_standard_streams()
assert os.open(sys.argv[1], os.O_RDONLY) > 2
assert sys.stdin.read() == ""
print("to nowhere", flush=True)
print("to nowhere", file=sys.stderr, flush=True)
assert all(os.get_inheritable(fd) for fd in (0, 1, 2))
"""


def redirected(
    words: list[str],
    how: str,
    folder: Path,
    program: Sequence[str] = (),
    unbuffered: str = "",
) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command with the redirections of a shell."""
    more = {"PYTHONUNBUFFERED": unbuffered} if unbuffered else {}
    env = clean_environment(MITOSIS_DATA_DIR=str(folder / "none"), **more)
    program = program or (MITOSIS if "&-" in how else prepared_mitosis(env))
    ran = subprocess.run(
        ["sh", "-c", f'exec "$@" {how}', "sh", *program, *words],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("closed", SUBSETS, ids=str)
def test_no_file_gets_the_number_of_a_closed_stream(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("as it was")
    how = " ".join({0: "<&-", 1: ">&-", 2: "2>&-"}[fd] for fd in closed)
    program = (sys.executable, "-P", "-c", OPENS_A_FILE)
    status, out, err = redirected([str(file)], how, tmp_path, program)
    assert (status, out, err) == (
        0,
        "" if 1 in closed else "to nowhere\n",
        "" if 2 in closed else "to nowhere\n",
    )


WORDS = [
    (["--version"], 0),
    (["run", "--dry-run", "--all", "--range", "1-2000", "echo", "{}"], 0),
    (["group", "list"], 69),
    (["--no-such-option"], 2),
]


@pytest.mark.parametrize(("words", "status"), WORDS, ids=lambda value: str(value)[:30])
def test_a_stream_that_nobody_has_changes_no_status(
    words: list[str], status: int, tmp_path: Path
) -> None:
    usual = redirected(words, "", tmp_path)
    assert usual[0] == status
    assert redirected(words, "<&- >&-", tmp_path) == (status, "", usual[2])
    assert redirected(words, "2>&-", tmp_path) == (status, usual[1], "")
    assert redirected(words, "2>/dev/full", tmp_path) == (status, usual[1], "")


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        (["--version"], ""),
        (["--help"], "1"),
        (["config", "show", "--all"], ""),
        (["run", "--dry-run", "--all", "--range", "1-2000", "echo", "{}"], "1"),
        (["run", "--dry-run", "--all", "--range", "1-2000", "echo", "{}"], ""),
    ],
    ids=lambda value: str(value)[:30],
)
def test_output_that_is_lost_is_one_line_and_a_status(
    words: list[str], unbuffered: str, tmp_path: Path
) -> None:
    status, _, err = redirected(words, ">/dev/full", tmp_path, unbuffered=unbuffered)
    assert err == "error: standard output cannot be written: No space left on device\n"
    assert status == os.EX_IOERR


def test_a_program_reads_that_output_is_lost(tmp_path: Path) -> None:
    status, _, err = redirected(["config", "show", "--json"], ">/dev/full", tmp_path)
    said = json.loads(err)
    assert (status, said["code"], said["exit_status"]) == (74, "output_lost", 74)


def test_nothing_can_be_said_and_the_status_is_true(tmp_path: Path) -> None:
    assert redirected(["--help"], ">/dev/full 2>/dev/full", tmp_path) == (74, "", "")
