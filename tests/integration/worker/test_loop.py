"""Control messages of a real worker: order, credit, cancel, pause, configure, shutdown."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.execution.state import MOST_CREDIT
from mitosis.ipc.messages import (
    Acknowledge,
    CancelTask,
    Configure,
    Goodbye,
    Pause,
    Resume,
    Shutdown,
    TakeBack,
    TakenBack,
    TasksFinished,
    TaskStarted,
)
from mitosis.worker.evidence import begun_by_process, running_attempt, withdraw
from mitosis.worker.zygote_protocol import Exited
from tests.support.checkout import ROOT
from tests.support.waiting import wait_until
from tests.support.worker_host import WorkerHost, gone, worker_host

SHORT: dict[str, Any] = {"handler": "builtins:abs", "arguments": [1]}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[WorkerHost]:
    with worker_host(tmp_path) as host:
        host.spawn()
        yield host


def sleeping(note: Path) -> dict[str, Any]:
    """A command that notes its pid and sleeps."""
    return {"command": ["sh", "-c", f"echo $$ > {note}.new; mv {note}.new {note}; exec sleep 600"]}


def begin(host: WorkerHost, note: Path, *more: dict[str, Any]) -> int:
    """Submit a sleeping command (and more); its pid once it runs."""
    host.submit(sleeping(note), *more)
    wait_until(note.exists)
    return int(note.read_text())


# --- order ----------------------------------------------------------------------------------------


def test_tasks_run_in_order_and_only_those_say_start_that_take_longer(host: WorkerHost) -> None:
    """The first says it, since nothing is known of the tasks; then short ones do not."""
    host.submit(*[SHORT] * 20)
    assert [report.task_id for report in host.finished(20)] == list(range(1, 21))
    said = [started.key.task_id for started in host.inbox[TaskStarted]]
    assert 1 in said
    assert len(said) < 20
    host.inbox[TaskStarted].clear()
    slow = [{"handler": "time:sleep", "arguments": [0.05]}] * 2
    host.submit(*slow, {**SHORT, "timeout_seconds": 60}, first_id=21)
    host.finished(3)
    assert {21, 22, 23} <= {started.key.task_id for started in host.inbox[TaskStarted]}


def test_a_start_in_code_in_c_is_known_from_shared_memory_alone(
    host: WorkerHost, tmp_path: Path
) -> None:
    """A handler that executes no bytecode cannot say that it has started."""
    host.submit(*[SHORT] * 20)
    host.finished(20)
    host.inbox[TaskStarted].clear()
    host.submit(SHORT, {"handler": "math:factorial", "arguments": [5_000_000]}, first_id=21)
    wait_until(lambda: running_attempt(tmp_path, 0) == AttemptKey(22, 1))
    assert begun_by_process(tmp_path, 0) == {AttemptKey(n, 1) for n in range(1, 23)}
    host.worker_kill(signal.SIGKILL)
    assert not host.inbox[TaskStarted]
    assert host.hear(Exited).running == AttemptKey(22, 1)
    host.spawn()
    assert begun_by_process(tmp_path, 0) == set()


def test_results_do_not_wait_behind_a_task_that_may_be_long(tmp_path: Path) -> None:
    """One that says its start at once; in code in C it would keep them until it ends."""
    go = tmp_path / "go"
    deaf = {"handler": "tests.support.deaf_handlers:wait_in_c", "arguments": [str(go)]}
    with worker_host(tmp_path, python_path=(str(ROOT),)) as host:
        host.spawn()
        host.submit(*[SHORT] * 20)
        host.finished(20)
        host.submit(*[SHORT] * 3, {**deaf, "timeout_seconds": 60}, first_id=21)
        assert [report.task_id for report in host.finished(3)] == [21, 22, 23]
        assert running_attempt(tmp_path, 0) == AttemptKey(24, 1)
        go.touch()
        host.finished()


def test_nor_behind_one_that_says_its_start_late(tmp_path: Path) -> None:
    go = tmp_path / "go"
    name = "tests.support.deaf_handlers:work_then_wait_in_c"
    deaf, short = ({"handler": name, "arguments": [str(go), seconds]} for seconds in (0.015, 0.0))
    with worker_host(tmp_path, python_path=(str(ROOT),)) as host:
        host.spawn()
        go.touch()
        host.submit(*[short] * 40)
        host.finished(40)
        go.unlink()
        host.inbox[TaskStarted].clear()
        Path(f"{go}.short").touch()
        quick = {"handler": name, "arguments": [f"{go}.short", 0.0]}
        host.submit(*[quick] * 3, deaf, first_id=41)
        while host.started().key.task_id != 44:
            pass  # a quick one that this machine made late
        assert [report.task_id for report in host.finished(3)] == [41, 42, 43]
        go.touch()
        host.finished()


def test_nor_behind_one_of_another_kind(tmp_path: Path) -> None:
    go = tmp_path / "go"
    deaf = {"handler": "tests.support.deaf_handlers:wait_in_c", "arguments": [str(go)]}
    with worker_host(tmp_path, python_path=(str(ROOT),)) as host:
        host.spawn()
        host.submit(*[SHORT] * 20)
        host.finished(20)
        host.submit(*[SHORT] * 3, deaf, first_id=21)
        assert [report.task_id for report in host.finished(3)] == [21, 22, 23]
        go.touch()
        host.finished()


def test_reports_come_in_batches_of_half_a_credit_at_most(host: WorkerHost) -> None:
    host.submit(*[SHORT] * 100)
    sizes: list[int] = []
    while sum(sizes) < 100:
        sizes.append(len(host.receive(TasksFinished).tasks))
    assert max(sizes) <= MOST_CREDIT / 2
    assert len(sizes) < 100


def test_a_report_does_not_wait_for_the_next_command(host: WorkerHost, tmp_path: Path) -> None:
    host.submit({"command": ["true"]}, sleeping(tmp_path / "note"))
    assert [report.task_id for report in host.finished()] == [1]


# --- cancel ---------------------------------------------------------------------------------------


@pytest.mark.spec("S000-27")
def test_a_running_command_is_cancelled_with_its_group(host: WorkerHost, tmp_path: Path) -> None:
    pid = begin(host, tmp_path / "note")
    number = host.order(CancelTask, AttemptKey(1, 1), 5.0, "not wanted")
    assert host.receive(Acknowledge).message_id == number
    (report,) = host.finished()
    assert (report.outcome, report.kind) == ("cancelled", "cancelled")
    assert (report.exit_code, report.signal) == (None, signal.SIGTERM)
    assert host.detail(report)["message"] == "cancelled: not wanted (killed by SIGTERM)"
    assert gone(pid)


@pytest.mark.spec("S000-28", "C-10")
def test_a_cancelled_command_that_ignores_sigterm_is_killed_after_the_grace_of_the_order(
    host: WorkerHost, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    host.submit({"command": ["sh", "-c", f"trap '' TERM; echo x > {note}; sleep 600; sleep 600"]})
    wait_until(note.exists)
    host.order(CancelTask, AttemptKey(1, 1), 0.2, "")
    (report,) = host.finished()
    assert (report.outcome, report.signal) == ("cancelled", signal.SIGKILL)


def test_a_second_cancel_can_shorten_the_grace(host: WorkerHost, tmp_path: Path) -> None:
    note = tmp_path / "note"
    host.submit({"command": ["sh", "-c", f"trap '' TERM; echo x > {note}; sleep 600; sleep 600"]})
    wait_until(note.exists)
    host.order(CancelTask, AttemptKey(1, 1), 600.0, "slowly")
    host.order(CancelTask, AttemptKey(1, 1), 0.1, "at once")
    (report,) = host.finished()
    assert host.detail(report)["message"].startswith("cancelled: slowly")


def test_a_queued_task_is_cancelled_without_having_started(
    host: WorkerHost, tmp_path: Path
) -> None:
    marker = tmp_path / "never"
    begin(host, tmp_path / "note", {"command": ["touch", str(marker)]})
    host.order(CancelTask, AttemptKey(2, 1), 5.0, "not wanted")
    (report,) = host.finished()
    assert (report.task_id, report.outcome, report.started_at) == (2, "cancelled", None)
    host.order(CancelTask, AttemptKey(1, 1), 5.0, "not wanted")
    assert [report.task_id for report in host.finished()] == [1]
    assert host.run(command=["true"])[0].outcome == "succeeded"
    assert not marker.exists()


@pytest.mark.parametrize(("task_id", "attempt"), [(1, 2), (99, 1)])
def test_cancelling_what_is_not_here_is_acknowledged_and_stops_nothing(
    host: WorkerHost, tmp_path: Path, task_id: int, attempt: int
) -> None:
    pid = begin(host, tmp_path / "note")
    number = host.order(CancelTask, AttemptKey(task_id, attempt), 0.0, "other")
    assert host.receive(Acknowledge).message_id == number
    assert not gone(pid)


@pytest.mark.parametrize(
    "long",
    [{"command": ["sleep", "600"]}, {"handler": "time:sleep", "arguments": [600]}],
    ids=["command", "handler"],
)
def test_what_waits_behind_a_long_task_is_given_back_and_never_begins(
    host: WorkerHost, tmp_path: Path, long: dict[str, Any]
) -> None:
    marker = tmp_path / "never"
    short = {"command": ["touch", str(marker)]}
    host.submit(long, short, short)
    host.started()
    host.send(TakeBack())
    assert host.receive(TakenBack).keys == (AttemptKey(2, 1), AttemptKey(3, 1))
    host.send(TakeBack())
    assert host.receive(TakenBack).keys == ()
    host.order(CancelTask, AttemptKey(1, 1), 5.0, "over")
    assert [report.task_id for report in host.finished()] == [1]
    assert host.run(command=["true"])[0].outcome == "succeeded"
    assert not marker.exists()


def test_what_is_withdrawn_while_no_message_is_read_never_begins(
    host: WorkerHost, tmp_path: Path
) -> None:
    """No TakeBack is sent: what is begun next was withdrawn before, and only that is given back."""
    marker, go = tmp_path / "never", tmp_path / "go"
    short = {"command": ["touch", str(marker)]}
    host.submit({"command": ["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"]}, short, short)
    assert host.started().key == AttemptKey(1, 1)
    withdraw(tmp_path, 0)
    assert running_attempt(tmp_path, 0) == AttemptKey(1, 1)
    go.touch()
    assert [report.task_id for report in host.finished()] == [1]
    assert host.receive(TakenBack).keys == (AttemptKey(2, 1), AttemptKey(3, 1))
    assert running_attempt(tmp_path, 0) is None
    assert host.run(command=["true"])[0].outcome == "succeeded"
    assert not marker.exists()


# --- pause and configure --------------------------------------------------------------------------


@pytest.mark.spec("S002-100")
def test_a_paused_worker_finishes_what_runs_and_starts_nothing(
    host: WorkerHost, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    host.submit({"command": ["cat", str(fifo)]}, {"command": ["true"]})
    host.started()
    number = host.order(Pause)
    assert host.receive(Acknowledge).message_id == number
    fifo.write_text("go on")
    assert [report.task_id for report in host.finished()] == [1]
    number = host.order(Configure)  # a round trip: had the second task begun, it would have said so
    assert host.receive(Acknowledge).message_id == number
    assert not host.inbox[TaskStarted]
    host.order(Resume)
    assert [report.task_id for report in host.finished()] == [2]


def test_the_length_of_the_tail_can_be_changed(host: WorkerHost) -> None:
    host.order(Configure, output_tail_bytes=3)
    host.receive(Acknowledge)
    assert host.run(command=["echo", "12345"])[1]["stdout"] == "45\n"
    printing = {"handler": "builtins:print", "arguments": ["12345"]}
    assert host.run(**printing)[1]["stdout"] == "45\n"


# --- shutdown -------------------------------------------------------------------------------------


@pytest.mark.spec("S002-129", "S002-100")
def test_a_graceful_shutdown_finishes_the_running_task_and_drops_the_rest(
    host: WorkerHost, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    host.submit({"command": ["cat", str(fifo)]}, {"command": ["touch", str(tmp_path / "never")]})
    host.started()
    number = host.order(Shutdown, True)
    assert host.receive(Acknowledge).message_id == number
    fifo.write_text("last words")
    (report,) = host.finished()
    assert (report.outcome, host.detail(report)["stdout"]) == ("succeeded", "last words")
    exited = host.expect_goodbye()
    assert ExitReason.from_wait_status(exited.wait_status).kind is ExitKind.SUCCESS
    assert not (tmp_path / "never").exists()


def test_an_idle_worker_ends_at_once(host: WorkerHost) -> None:
    host.order(Shutdown, True)
    exited = host.expect_goodbye()
    assert (exited.leftovers, exited.running) == (0, None)


@pytest.mark.spec("S002-130", "S002-100")
def test_a_forced_shutdown_kills_the_task_and_does_not_report_it(
    host: WorkerHost, tmp_path: Path
) -> None:
    pid = begin(host, tmp_path / "note")
    host.order(Shutdown, False, 0.2)
    host.receive(Goodbye)
    assert gone(pid)
    assert not host.inbox[TasksFinished]
    assert ExitReason.from_wait_status(host.hear(Exited).wait_status).kind is ExitKind.SUCCESS


def test_a_forced_shutdown_ends_a_handler(host: WorkerHost) -> None:
    host.submit({"handler": "time:sleep", "arguments": [600]})
    host.started()
    host.order(Shutdown, False, 5.0)
    host.expect_goodbye()
    assert not host.inbox[TasksFinished]
