"""Programs of earlier versions, out of the history of this checkout."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.program import MITOSIS, clean_environment
from tests.support.waiting import wait_until

SCHEMA_0003 = "9593f110a6c07d9aa50a2ec0ba71d7e4c0474cee"
"""The last commit with that schema. It writes no row of its process, lists no fields, and knows no task state
of later versions."""
UNVERSIONED = "23db1d3766588b8c3bdb6e6be2b52ce7ad6d77dd"
"""The last commit whose control workers are all alike to Temporal."""
PARTS = ("mitosis", "api", "workflows", "activities", "manager_agent", "migrations")
READY = ("API at", "control worker of", "temporal.polling")


def unpacked(commit: str, folder: Path) -> Path:
    """The tree of a commit, in ``folder``; skips the test where there is no history."""
    words = ["git", "-C", str(ROOT), "archive", commit, *PARTS]
    archive = subprocess.run(words, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip("this checkout has no git, or not the whole history")
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


@contextmanager
def running(tree: Path, data: Path, part: str, **settings: str) -> Iterator[Path]:
    """A part of the version in ``tree`` as a process, and its output; stopped in order at the end."""
    data.mkdir(mode=0o700, exist_ok=True)
    log = data.parent / f"{data.name}-{part}.log"
    env = clean_environment(PYTHONPATH=str(tree), MITOSIS_DATA_DIR=str(data), **settings)
    with log.open("wb") as out:
        process = subprocess.Popen([*MITOSIS, part], env=env, stdout=out, stderr=out)
    try:
        wait_until(lambda: any(word in log.read_text() for word in READY), 60, log.read_text)
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
