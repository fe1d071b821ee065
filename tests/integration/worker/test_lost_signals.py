"""A signal that comes just before a system call, which it does not interrupt, is not lost."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.ipc.messages import CancelTask
from mitosis.worker.zygote_protocol import Exited, Spawn
from tests.support.checkout import ROOT
from tests.support.waiting import wait_until
from tests.support.worker_host import WorkerHost, is_over, worker_host

MODULE = "tests.support.lost_signals"
SETUP = {"handler_modules": (MODULE,), "python_path": (str(ROOT),)}
SOON_SECONDS = 5.0


@pytest.mark.parametrize("place", ["idle worker", "worker with a command"])
def test_a_worker_ends_by_a_sigterm_that_comes_just_before_its_poll(
    tmp_path: Path, place: str
) -> None:
    with worker_host(tmp_path, **SETUP, environment={"LOSE_SIGTERM_IN": place}) as host:
        if place == "idle worker":
            host.say(Spawn(0, 1, None))
        else:
            host.spawn()
            host.submit({"command": ["sleep", "600"]})
        host.socket.settimeout(SOON_SECONDS)
        reason = ExitReason.from_wait_status(host.hear(Exited).wait_status)
        assert reason == ExitReason(ExitKind.SIGNAL, signal.SIGTERM)


def test_a_zygote_ends_by_a_sigterm_that_comes_just_before_its_poll(tmp_path: Path) -> None:
    with worker_host(tmp_path, **SETUP, environment={"LOSE_SIGTERM_IN": "zygote"}) as host:
        assert host.zygote.wait(SOON_SECONDS) == 0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[WorkerHost]:
    with worker_host(tmp_path, **SETUP) as host:
        host.spawn()
        yield host


def test_a_handler_is_stopped_whose_alarm_came_just_before_its_system_call(
    host: WorkerHost,
) -> None:
    host.submit({"handler": f"{MODULE}:sleep"})
    host.started()
    host.order(CancelTask, AttemptKey(1, 1), SOON_SECONDS, "enough")
    (report,) = host.finished()
    assert report.kind == "cancelled"


def test_a_handler_that_ignores_sigterm_ends_with_its_zygote(host: WorkerHost) -> None:
    host.submit({"handler": f"{MODULE}:sleep_deaf"})
    host.started()
    wait_until(lambda: ignored(host.worker_pid, signal.SIGTERM))
    host.zygote.kill()
    wait_until(lambda: is_over(host.worker_pid), SOON_SECONDS)


def ignored(pid: int, number: int) -> bool:
    mask = Path(f"/proc/{pid}/status").read_text().split("SigIgn:")[1].split()[0]
    return bool(int(mask, 16) >> (number - 1) & 1)
