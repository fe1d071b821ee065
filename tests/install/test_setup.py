"""``make setup``: ready means nothing to do, interrupted means starting over, never half of it.

A stand-in for the interpreter notes what it is asked to do; installing for real is what every run
of ``.ci/run`` begins with.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_until

SETUP = Path(__file__).resolve().parent.parent.parent / "tools" / "setup.sh"

# `python -m venv --clear .venv` makes an environment whose python is this same stand-in.
STAND_IN = f"""#!/bin/sh
case "$*" in
    -c*) exec {sys.executable} "$@" ;;
    "-m venv"*)
        while [ -e held ]; do sleep 0.02; done
        rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo venv >>calls ;;
    "-m pip"*-r*) echo install >>calls; [ ! -e broken ] ;;
    "-m pip"*) echo ourselves >>calls ;;
esac
"""
FROM_SCRATCH = ["venv", "install", "ourselves"]
UPDATE = ["install", "ourselves"]


class Checkout:
    """A folder with what the script reads, and a note of what it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools").mkdir(parents=True)
        shutil.copy(SETUP, folder / "tools" / "setup.sh")
        (folder / "requirements.lock").write_text("one\n")
        (folder / "pyproject.toml").write_text("two\n")
        (folder / "stand-in").write_text(STAND_IN)
        (folder / "stand-in").chmod(0o755)

    def start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHON": str(self.folder / "stand-in")}
        return subprocess.Popen([self.folder / "tools" / "setup.sh"], env=environment)

    def setup(self) -> list[str]:
        """Run the script; what it did, or "failed" at the end."""
        status = self.start().wait()
        return self.calls() + (["failed"] if status else [])

    def calls(self) -> list[str]:
        noted = self.folder / "calls"
        calls = noted.read_text().split() if noted.exists() else []
        noted.unlink(missing_ok=True)
        return calls


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


def test_the_first_run_makes_it_and_the_second_has_nothing_to_do(checkout: Checkout) -> None:
    assert checkout.setup() == FROM_SCRATCH
    assert checkout.setup() == []


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_changed_lock_is_installed_into_the_same_environment(
    checkout: Checkout, name: str
) -> None:
    checkout.setup()
    (checkout.folder / name).write_text("other\n")
    assert checkout.setup() == UPDATE
    assert checkout.setup() == []


def test_an_interrupted_run_starts_over(checkout: Checkout) -> None:
    (checkout.folder / "broken").touch()
    assert checkout.setup() == ["venv", "install", "failed"]
    (checkout.folder / "broken").unlink()
    assert checkout.setup() == FROM_SCRATCH


def test_an_interrupted_update_starts_over(checkout: Checkout) -> None:
    checkout.setup()
    (checkout.folder / "broken").touch()
    (checkout.folder / "requirements.lock").write_text("other\n")
    assert checkout.setup() == ["install", "failed"]
    (checkout.folder / "broken").unlink()
    assert checkout.setup() == FROM_SCRATCH


def test_a_moved_folder_starts_over(checkout: Checkout) -> None:
    checkout.setup()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("elsewhere"))
    assert checkout.setup() == FROM_SCRATCH


def test_the_second_of_two_runs_waits_and_has_nothing_to_do(checkout: Checkout) -> None:
    (checkout.folder / "held").touch()
    running = [checkout.start(), checkout.start()]
    try:
        wait_until(lambda: any(waits_for_a_lock(process.pid) for process in running))
    finally:
        (checkout.folder / "held").unlink()
    assert [process.wait() for process in running] == [0, 0]
    assert checkout.calls() == FROM_SCRATCH


def waits_for_a_lock(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):  # a child may end between the list and its name
        return any(child.name() == "flock" for child in psutil.Process(pid).children())
    return False


def test_an_interpreter_that_is_too_old_is_refused(
    checkout: Checkout, capfd: pytest.CaptureFixture[str]
) -> None:
    too_old = STAND_IN.replace("-c*)", "-c*version_info*) exit 1 ;;\n    -c*)")
    (checkout.folder / "stand-in").write_text(too_old)
    assert checkout.setup() == ["failed"]
    assert "Mitosis needs Python 3.11 or newer" in capfd.readouterr().err
