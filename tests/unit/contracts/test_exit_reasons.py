"""How processes end: decoded from the wait status of real children."""

import os
import signal
import subprocess
import sys

import pytest

from mitosis.contracts.outcome import ExitKind, ExitReason, crash_limit

STOPPED = 0x137F  # What waitpid gives for a stopped child (WUNTRACED): neither exited nor killed.


def end_of(code: str) -> ExitReason:
    """Run Python code in a child and decode how it ended."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-c", code], os.environ)
    _, status = os.waitpid(pid, 0)
    return ExitReason.from_wait_status(status)


@pytest.mark.spec("S000-59", "S000-65", "S000-66")
@pytest.mark.parametrize(
    ("code", "kind", "number", "text"),
    [
        ("pass", ExitKind.SUCCESS, 0, "success"),
        ("raise SystemExit(7)", ExitKind.EXIT_CODE, 7, "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", ExitKind.SIGNAL, 9, "killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", ExitKind.SIGNAL, 40, "killed by signal 40"),
    ],
)
def test_the_end_of_a_child(code: str, kind: ExitKind, number: int, text: str) -> None:
    reason = end_of(code)
    assert (reason.kind, reason.number, str(reason)) == (kind, number, text)
    assert not reason.core_dumped


@pytest.mark.spec("S000-59", "S000-65", "S000-66")
def test_anything_else_is_unknown() -> None:
    assert ExitReason.from_wait_status(STOPPED) == ExitReason(ExitKind.UNKNOWN)
    assert str(ExitReason(ExitKind.UNKNOWN)) == "unknown exit"


@pytest.mark.spec("S000-66")
def test_a_core_dump_is_told() -> None:
    assert ExitReason.from_wait_status(signal.SIGSEGV | 0x80).core_dumped


FATAL_AT_TWO = ("SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE")
NEVER_FATAL = ("SIGTERM", "SIGINT")


@pytest.mark.parametrize("name", FATAL_AT_TWO)
def test_a_broken_program_is_given_up_after_two_crashes(name: str) -> None:
    assert crash_limit(ExitReason(ExitKind.SIGNAL, signal.Signals[name])) == 2


@pytest.mark.parametrize("name", NEVER_FATAL)
def test_being_told_to_stop_is_never_the_tasks_fault(name: str) -> None:
    assert crash_limit(ExitReason(ExitKind.SIGNAL, signal.Signals[name])) is None


def test_everything_else_is_given_up_after_three() -> None:
    others = signal.valid_signals() - {signal.Signals[n] for n in (*FATAL_AT_TWO, *NEVER_FATAL)}
    reasons = [ExitReason(ExitKind.SIGNAL, number) for number in others]
    reasons += [ExitReason(ExitKind.EXIT_CODE, code) for code in (1, 2, 255)]
    reasons += [ExitReason(ExitKind.UNKNOWN)]
    assert {crash_limit(reason) for reason in reasons} == {3}


def test_success_is_never_a_failure() -> None:
    assert crash_limit(ExitReason(ExitKind.SUCCESS, 0)) is None


def test_the_shell_reports_a_killed_command_as_an_exit_code() -> None:
    """A reminder: `sh -c` turns a signal into 128 + n, so such a command *exits*."""
    done = subprocess.run(["sh", "-c", "sh -c 'kill -9 $$'; exit $?"], check=False)
    assert done.returncode == 128 + 9
