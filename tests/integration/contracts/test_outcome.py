"""How processes end: decoded from the wait status of real children."""

import os
import subprocess
import sys

import pytest

from mitosis.contracts.outcome import ExitKind, ExitReason


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


def test_the_shell_reports_a_killed_command_as_an_exit_code() -> None:
    """A reminder: `sh -c` turns a signal into 128 + n, so such a command *exits*."""
    done = subprocess.run(["sh", "-c", "sh -c 'kill -9 $$'; exit $?"], check=False)
    assert done.returncode == 128 + 9
