"""`mitosis run --up`: what does not go with it, what a signal does at any moment, and what a kill leaves."""

import fcntl
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from mitosis.cli.stack.temporary_folder import sweep
from tests.support.prepared import PreparedPopen
from tests.support.processes import descendants, living
from tests.support.program import clean_environment
from tests.support.run_command import run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
STUBBORN = "trap '' TERM HUP; touch on; while :; do sleep 0.1; done"


class Run:
    """A run with a stack of its own below ``folder``, and what it says."""

    def __init__(self, folder: Path, process: PreparedPopen, log: Path) -> None:
        self._folder = folder
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def left(self) -> list[Path]:
        """Folders of runs, and those of sockets."""
        return [path for path in self._folder.iterdir() if path.name.startswith("mitosis-")]


@contextmanager
def own_stack(folder: Path, *words: str) -> Iterator[Run]:
    """A run that is killed at the end, if it is still there."""
    sockets = folder / "x"
    sockets.mkdir(exist_ok=True)
    log = folder / "said"
    argv = ["run", "--up", "-w", "1", "--progress", "plain", *words]
    with log.open("wb") as output:
        process = PreparedPopen(
            "mitosis.cli", argv, environment(folder), output.fileno(), cwd=folder
        )
    try:
        yield Run(folder, process, log)
    finally:
        process.kill()
        process.wait()


def environment(folder: Path) -> Mapping[str, str]:
    return clean_environment(TMPDIR=str(folder), XDG_RUNTIME_DIR=str(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A short one: sockets are in it. Others may pass through, as PostgreSQL's user if we are root."""
    tmp_path.chmod(0o711)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--detach"], "--detach"),
        (["-d"], "--detach"),
        (["--on-interrupt", "detach"], "--on-interrupt detach"),
        (["--data-dir", "kept"], "--data-dir"),
        (["--api", "http://127.0.0.1:1"], "--api"),
    ],
)
def test_what_does_not_go_with_a_stack_of_its_own_is_refused(
    tmp_path: Path, words: list[str], option: str
) -> None:
    with own_stack(tmp_path, *words, "true") as run:
        assert run.process.wait(30) == 2
    assert f"error: --up and {option}: " in run.said
    assert f"leave out {option}" in run.said
    assert run.left == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_during_the_start_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    with own_stack(folder, "touch", "on") as run:
        wait_until(lambda: any(folder.glob("mitosis-run-*/data/logs/initdb.log")), 60)
        below = descendants(run.process.pid)
        run.process.send_signal(number)
        assert run.process.wait(60) == 130, run.said
    assert "interrupted; the stack of this run and its tasks have ended" in run.said
    assert "Traceback" not in run.said
    assert (run.left, living(below)) == ([], [])
    assert not (folder / "on").exists()


def test_a_closed_terminal_cancels_and_the_next_run_removes_what_a_killed_one_left(
    folder: Path,
) -> None:
    used = folder / "mitosis-run-used"
    used.mkdir()
    with own_stack(folder, "true") as killed:
        wait_until(lambda: any(folder.glob("mitosis-run-*/data/postgres/data/PG_VERSION")), 60)
        below = descendants(killed.process.pid)
        killed.process.kill()
        killed.process.wait()
        wait_until(lambda: not living(below), 30, lambda: living(below))
    old = {path for path in killed.left if path != used}
    assert old
    with (used / "owner").open("w") as owner, own_stack(folder, "sh", "-c", STUBBORN) as run:
        fcntl.flock(owner, fcntl.LOCK_EX)
        wait_until((folder / "on").exists, 60, lambda: run.said)
        assert not old & set(run.left)
        below = descendants(run.process.pid)
        run.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "cancelling" in run.said, 30, lambda: run.said)
        run.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "not waiting for the end" in run.said, 30, lambda: run.said)
        run.process.send_signal(signal.SIGTERM)  # while the stack stops
        assert run.process.wait(60) == 130, run.said
        assert "; the stack of this run ends with them" in run.said
        assert "detach" not in run.said
        assert "watch" not in run.said
        assert run.left == [used]
        wait_until(lambda: not living(below), 30, lambda: living(below))


def test_what_belongs_to_nobody_known_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("mitosis-run-starting", "mitosis-run-dead", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "mitosis-run-dead" / "owner").write_text(str(tmp_path / "other"))
    (tmp_path / "mitosis-run-dead" / "data").mkdir()
    (tmp_path / "mitosis-run-link").symlink_to(tmp_path / "other")
    sweep("mitosis-run-")
    assert {path.name for path in tmp_path.iterdir()} == {
        "mitosis-run-starting",
        "mitosis-run-link",
        "other",
    }


def test_without_a_stack_the_command_to_type_is_named(tmp_path: Path) -> None:
    done = run(
        clean_environment(MITOSIS_DATA_DIR=str(tmp_path / "none"), HOME=os.environ["HOME"]), "true"
    )
    assert done.returncode == 4
    assert b"mitosis up" in done.stderr
    assert b"--up" in done.stderr


def test_a_stack_for_this_run_alone(tmp_path: Path) -> None:
    env = clean_environment(MITOSIS_DATA_DIR=str(tmp_path / "none"), TMPDIR=str(tmp_path))
    done = run(env, "--up", "echo", "{}", ":::", "alone")
    assert (done.returncode, done.stdout) == (0, b"alone\n"), done.stderr
    assert not list(tmp_path.glob("mitosis-run-*"))
