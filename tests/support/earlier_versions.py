"""Programs of earlier versions: wheels, built out of the history of this checkout and installed."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.program import MITOSIS, clean_environment
from tests.support.waiting import wait_until
from tests.support.wheels import build, new_environment

SCHEMA_0003 = "9593f110a6c07d9aa50a2ec0ba71d7e4c0474cee"
"""The last commit with that schema. It writes no row of its process, lists no fields, and knows no task state
of later versions."""
UNVERSIONED = "23db1d3766588b8c3bdb6e6be2b52ce7ad6d77dd"
"""The last commit whose control workers are all alike to Temporal."""
READY = ("API at", "control worker of", "temporal.polling")


def installed(commit: str, folder: Path) -> Path:
    """The ``mitosis`` of the wheel of a commit, in an environment in ``folder``.

    Skips the test where there is no history.
    """
    words = ["git", "-C", str(ROOT), "archive", commit]
    archive = subprocess.run(words, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip("this checkout has no git, or not the whole history")
    source = folder / "source"
    source.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    wheel = build(source, folder / "wheel", "--wheel")
    shutil.rmtree(source)
    environment = new_environment(folder / "environment")
    environment.install(wheel)
    origin = environment.run("python", "-c", "import mitosis; print(mitosis.__file__)").strip()
    assert origin.startswith(str(environment.site_packages)), origin
    return environment.folder / "bin" / "mitosis"


@contextmanager
def running(
    program: Path | None,
    data: Path,
    part: str,
    ended_by: signal.Signals = signal.SIGTERM,
    /,
    **settings: str,
) -> Iterator[Path]:
    """A part of a version as a process, and its output; it is ended when the context is closed.

    ``program``: the ``mitosis`` of an earlier version. None: of this checkout.
    """
    data.mkdir(mode=0o700, exist_ok=True)
    log = data.parent / f"{data.name}-{part}.log"
    env = clean_environment(MITOSIS_DATA_DIR=str(data), **settings)
    words = MITOSIS if program is None else (str(program),)
    with log.open("wb") as out:
        process = subprocess.Popen([*words, part], env=env, cwd=data, stdout=out, stderr=out)
    try:
        wait_until(lambda: any(word in log.read_text() for word in READY), 60, log.read_text)
        yield log
        process.send_signal(ended_by)
        killed = ended_by is signal.SIGKILL
        assert process.wait(60) == (-ended_by if killed else 0), log.read_text()
    finally:
        process.kill()
        process.wait()
