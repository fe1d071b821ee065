"""A command for which its host has no process: repeated, then given back; it has not run."""

import time
from collections.abc import Iterator

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.messages import CancelTask, TaskNotStarted
from mitosis.worker.evidence import begun_by_process
from mitosis.worker.process_limit import pids_folder
from tests.support.full_host import FullHost
from tests.support.waiting import wait_until
from tests.support.worker_host import WorkerHost, worker_host

pytestmark = pytest.mark.skipif(pids_folder() is None, reason="no pids cgroup can be made")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHost]:
    with worker_host(tmp_path_factory.mktemp("host")) as host:
        host.spawn()
        yield host


@pytest.fixture
def full(host: WorkerHost) -> Iterator[FullHost]:
    full = FullHost(host.worker_pid)
    full.fill()
    yield full
    full.free()


def test_a_command_waits_for_a_process_and_then_runs(host: WorkerHost, full: FullHost) -> None:
    before = full.refused
    host.submit({"command": ["echo", "ran"], "timeout_seconds": 30})
    host.started()
    wait_until(lambda: full.refused >= before + 3)
    full.free()
    (report,) = host.finished()
    assert report.outcome == "succeeded", "it had no process of its own, so it hit no limit"


def test_a_command_that_cannot_start_is_given_back(host: WorkerHost, full: FullHost) -> None:
    key = AttemptKey(7, 1)  # of no other test here: they share the worker
    host.submit({"command": ["true"], "timeout_seconds": 0.5}, first_id=7)
    message = host.receive(TaskNotStarted)
    wait_until(lambda: key not in begun_by_process(host.folder, 0))
    assert message.key == key
    assert "Resource temporarily unavailable" in message.reason
    full.free()
    host.submit({"command": ["true"]}, first_id=2)
    (report,) = host.finished()
    assert (report.task_id, report.outcome) == (2, "succeeded"), "the worker goes on"


def test_a_waiting_command_is_cancelled_at_once(host: WorkerHost, full: FullHost) -> None:
    before = full.refused
    host.submit({"command": ["true"]})
    host.started()
    wait_until(lambda: full.refused > before)
    host.order(CancelTask, AttemptKey(1, 1), 1.0, "no need")
    (report,) = host.finished()
    assert (report.outcome, report.kind) == ("cancelled", "cancelled")


def test_the_wait_is_a_part_of_the_timeout(host: WorkerHost, full: FullHost) -> None:
    before = full.refused
    host.submit({"command": ["sleep", "60"], "timeout_seconds": 2.0, "kill_grace_seconds": 0})
    started = host.started()
    wait_until(lambda: full.refused >= before + 3 and time.time() > started.started_at + 1.0)
    full.free()
    (report,) = host.finished()
    assert report.kind == "timeout"
    assert report.started_at is not None
    assert report.finished_at is not None
    assert report.finished_at - report.started_at < 2.0, "what the wait left of it"
