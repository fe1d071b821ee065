"""Nobody reads the output, as in `mitosis doctor | head -1`: a quiet end, and no error."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.program import MITOSIS, clean_environment, prepared_mitosis

EVERY = [
    (["--version"], 0),
    (["--help"], 0),
    (["config", "show", "--all"], 0),
    (["config", "show", "--all", "--json"], 0),
    (["run", "--dry-run", "--all", "--range", "1-2000", "echo", "{}"], 130),
]


def environment(folder: Path) -> dict[str, str]:
    """Without a stack, and with the buffer that Python has for a pipe."""
    return clean_environment(MITOSIS_DATA_DIR=str(folder / "none"))


def unread(words: Sequence[str], folder: Path) -> tuple[int, bytes]:
    """The status and standard error of a command whose standard output is a pipe without a reader."""
    env = environment(folder)
    program = (lambda _: MITOSIS) if words[0] == "--version" else prepared_mitosis
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*program(env), *words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("words", "status"), EVERY, ids=lambda value: str(value)[:40])
def test_a_closed_pipe_is_no_error(words: list[str], status: int, tmp_path: Path) -> None:
    assert unread(words, tmp_path) == (status, b"")


def test_the_doctor_says_by_its_status_what_it_found(tmp_path: Path) -> None:
    env = environment(tmp_path)
    read = subprocess.run(
        [*prepared_mitosis(env), "doctor"],
        env=env,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert unread(["doctor"], tmp_path) == (read.returncode, b"")
