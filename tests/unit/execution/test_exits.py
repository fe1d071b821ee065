"""Deaths of workers as reports, and the kernel's count of processes killed for lack of memory."""

from pathlib import Path
from signal import SIGKILL, SIGSTOP

import msgspec
import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.contracts.wire import TaskReport
from mitosis.execution.events import WorkerExited
from mitosis.execution.exits import lost_attempt, oom_kills
from tests.support.reports import decoded


def died(
    reason: ExitReason, *, oom: bool = False, cancelled: bool = False, killed: str | None = None
) -> TaskReport:
    event = WorkerExited(2, 0, reason, oom, at=105.0)
    return decoded(lost_attempt(AttemptKey(1, 3), 100.0, event, killed, cancelled))


def message(report: TaskReport) -> object:
    return msgspec.json.decode(report.detail)["message"]


@pytest.mark.spec("S000-59", "S000-65", "S000-66")
@pytest.mark.parametrize(
    ("reason", "exit_code", "signal", "says"),
    [
        (ExitReason(ExitKind.SIGNAL, 11), None, 11, "killed by SIGSEGV"),
        (ExitReason(ExitKind.SIGNAL, 9), None, 9, "killed by SIGKILL"),
        (ExitReason(ExitKind.EXIT_CODE, 3), 3, None, "exit code 3"),
        (ExitReason(ExitKind.SUCCESS, 0), None, None, "ended with status 0 while it ran the task"),
        (ExitReason(ExitKind.UNKNOWN), None, None, "unknown exit"),
    ],
)
def test_each_class_of_death_is_told(
    reason: ExitReason, exit_code: int | None, signal: int | None, says: str
) -> None:
    report = died(reason)
    assert (report.kind, report.exit_code, report.signal) == ("worker_lost", exit_code, signal)
    assert str(message(report)).endswith(says)
    assert (report.task_id, report.attempt, report.outcome) == (1, 3, "failed")
    assert (report.started_at, report.finished_at) == (100.0, 105.0)


def test_only_a_sigkill_with_the_kernels_count_is_lack_of_memory() -> None:
    assert died(ExitReason(ExitKind.SIGNAL, 9), oom=True).kind == "out_of_memory"
    assert died(ExitReason(ExitKind.SIGNAL, 11), oom=True).kind == "worker_lost"
    assert died(ExitReason(ExitKind.SIGNAL, 9)).kind == "worker_lost"


def test_what_we_killed_says_why() -> None:
    report = died(ExitReason(ExitKind.SIGNAL, 9), killed="too long")
    assert (report.kind, message(report)) == ("timeout", "too long")
    cancelled = died(ExitReason(ExitKind.SIGNAL, 9), killed="hung", cancelled=True)
    assert (cancelled.outcome, cancelled.kind) == ("cancelled", "cancelled")


def test_a_worker_that_was_stopped_is_a_crash_by_that_signal() -> None:
    """The SIGKILL is of this agent, so it is not what the task is charged for."""
    reason = ExitReason(ExitKind.SIGNAL, SIGKILL)
    event = WorkerExited(3, 0, reason, True, 105.0, stopped_seconds=30.0)
    report = decoded(lost_attempt(AttemptKey(1, 3), 100.0, event, None, False))
    assert (report.kind, report.signal) == ("worker_lost", SIGSTOP)
    assert message(report) == (
        "its worker was stopped by SIGSTOP for more than 30 s (agent.stopped_limit_seconds)"
        " and was killed"
    )


def test_a_worker_that_ended_with_its_zygote_is_not_charged_as_a_crash() -> None:
    """Which task killed the zygote is not known; what the user or the agent ended keeps its reason."""
    ended = ExitReason(ExitKind.SIGNAL, SIGKILL)
    event = WorkerExited(3, 0, ExitReason(ExitKind.UNKNOWN), True, 105.0, zygote=ended)
    report = decoded(lost_attempt(AttemptKey(1, 3), 100.0, event, None, False))
    assert (report.kind, report.signal, report.exit_code) == ("workers_lost", None, None)
    assert message(report) == (
        "the zygote of its worker ended while it ran, and every worker there with it: killed by SIGKILL"
    )
    assert decoded(lost_attempt(AttemptKey(1, 3), 100.0, event, "late", False)).kind == "timeout"
    assert decoded(lost_attempt(AttemptKey(1, 3), 100.0, event, None, True)).kind == "cancelled"


@pytest.mark.parametrize(
    ("cgroup", "file", "text"),
    [
        ("0::/mitosis.slice/a\n", "mitosis.slice/a/memory.events", "oom 3\noom_kill 2\n"),
        (
            "9:name=systemd:/\n4:cpu,memory:/x/y\n0::/\n",
            "memory/x/y/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
        (
            "4:memory:/outside/of/this/namespace\n",
            "memory/memory.oom_control",
            "under_oom 0\noom_kill 2\n",
        ),
    ],
)
def test_the_kernels_count_is_read_of_both_versions(
    tmp_path: Path, cgroup: str, file: str, text: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert oom_kills(cgroup, tmp_path) == 2


def test_without_a_memory_cgroup_nothing_counts(tmp_path: Path) -> None:
    assert oom_kills("0::/\n1:cpu:/\n", tmp_path) == 0
    assert isinstance(oom_kills(), int)


def test_the_last_words_of_a_worker_are_in_the_report() -> None:
    reason = ExitReason(ExitKind.SIGNAL, 11)
    event = WorkerExited(2, 0, reason, False, 105.0, "Fatal Python error")
    report = decoded(lost_attempt(AttemptKey(1, 3), 100.0, event, None, False))
    assert msgspec.json.decode(report.detail)["stderr"] == "Fatal Python error"
    assert "stderr" not in msgspec.json.decode(died(reason).detail)
