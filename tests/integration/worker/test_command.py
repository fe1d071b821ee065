"""Command tasks in a real worker: how they end, what is kept of their output, and that nothing stays."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.ids import task_uuid
from mitosis.contracts.outcome import signal_name
from mitosis.contracts.task import MAX_TASK_SECONDS
from tests.support.checkout import ROOT
from tests.support.worker_host import GROUP_NUMBER, WorkerHost, gone, worker_host

TAIL = 8192
# The C library keeps signals 32 and 33 for itself and refuses sigaction(2) on them: what started
# the tests decides them. Source: nptl(7), "NPTL and signals".
KEPT_BY_LIBC = 1 << (32 - 1) | 1 << (33 - 1)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHost]:
    environment = {"FROM_PLAN": "plan", "FROM_BOTH": "plan"}
    with worker_host(tmp_path_factory.mktemp("host"), environment=environment) as host:
        host.spawn()
        yield host


# --- how a command ends ---------------------------------------------------------------------------


@pytest.mark.spec("S000-57", "S000-59", "S000-66", "S001-28")
@pytest.mark.parametrize("code", [0, 1, 3, 126, 127, 255])
def test_an_exit_status_is_kept(host: WorkerHost, code: int) -> None:
    report, detail = host.run(command=["sh", "-c", f"exit {code}"])
    kind = "exit_code" if code else None
    outcome = "failed" if code else "succeeded"
    assert (report.outcome, report.kind, report.exit_code, report.signal) == (
        outcome,
        kind,
        code,
        None,
    )
    assert detail.get("message") == (f"exit code {code}" if code else None)


@pytest.mark.spec("S000-57", "S000-59", "S000-65", "S000-66")
@pytest.mark.parametrize(
    "number", ["SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE", "SIGKILL", "SIGABRT", "SIGTERM", "SIGINT"]
)
def test_a_fatal_signal_is_kept(host: WorkerHost, number: str) -> None:
    wanted = signal.Signals[number]
    report, detail = host.run(command=["sh", "-c", f"ulimit -c 0; kill -{wanted.value} $$"])
    assert (report.outcome, report.kind) == ("failed", "signal")
    assert (report.exit_code, report.signal) == (None, wanted.value)
    assert detail["message"] == f"killed by {signal_name(wanted)}"


def test_the_resources_of_a_command_are_measured(host: WorkerHost) -> None:
    code = "x = bytearray(80_000_000); sum(range(2_000_000))"
    _, detail = host.run(command=[sys.executable, "-S", "-c", code])
    usage = detail["usage"]
    assert usage["max_rss_bytes"] > 80_000_000
    assert usage["user_seconds"] > 0.01


@pytest.mark.parametrize(
    ("script", "kind"), [("true", None), ("exit 3", "exit_code"), ("exec sleep 60", "timeout")]
)
def test_a_command_that_has_begun_runs_once_also_without_a_descriptor_for_it(
    tmp_path: Path, script: str, kind: str | None
) -> None:
    setup = {"handler_modules": ("tests.support.no_descriptors",), "python_path": (str(ROOT),)}
    log = tmp_path / "log"
    command = ["sh", "-c", f"echo run >> {log}; {script}"]
    with worker_host(tmp_path, **setup, environment={"NO_DESCRIPTOR_IN": "workers"}) as host:
        host.spawn()
        report, _ = host.run(command=command, timeout_seconds=0.5 if kind == "timeout" else 60)
    assert report.kind == kind
    assert log.read_text() == "run\n"


def test_no_shell_ever_sees_a_command(host: WorkerHost) -> None:
    _, detail = host.run(command=["printf", "%s|", "$HOME", "a b", "*", ";true", "'"])
    assert detail["stdout"] == "$HOME|a b|*|;true|'|"


# --- what could not be started --------------------------------------------------------------------


def test_a_missing_command_is_named_with_the_path_that_was_searched(host: WorkerHost) -> None:
    report, detail = host.run(command=["no-such-program"], environment={"PATH": "/bin:/usr/bin"})
    assert (report.outcome, report.kind, report.exit_code) == ("failed", "not_started", 127)
    assert detail["message"] == "command not found: no-such-program (PATH is /bin:/usr/bin)"


def test_the_path_of_the_task_is_searched(host: WorkerHost, tmp_path: Path) -> None:
    tool = tmp_path / "own-tool"
    tool.write_text("#!/bin/sh\necho own\n")
    tool.chmod(0o755)
    _, detail = host.run(command=["own-tool"], environment={"PATH": f"{tmp_path}:/bin"})
    assert detail["stdout"] == "own\n"


def test_a_file_that_is_not_executable_is_named(host: WorkerHost, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("x")
    report, detail = host.run(command=[str(file)])
    assert (report.kind, report.exit_code) == ("not_started", 126)
    assert detail["message"] == f"no permission to execute {file}"


def test_a_missing_interpreter_is_named(host: WorkerHost, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    report, detail = host.run(command=[str(script)])
    assert (report.kind, report.exit_code) == ("not_started", 127)
    assert "interpreter" in detail["message"]


def test_a_file_of_no_executable_format_is_named(host: WorkerHost, tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"\x7fELF nonsense")
    file.chmod(0o755)
    report, detail = host.run(command=[str(file)])
    assert (report.kind, report.exit_code) == ("not_started", 126)
    assert str(file) in detail["message"]


def test_a_missing_folder_is_named(host: WorkerHost) -> None:
    report, detail = host.run(command=["true"], working_directory="/no/such/folder")
    assert (report.kind, report.exit_code) == ("not_started", 126)
    assert detail["message"] == "working_directory /no/such/folder does not exist on this host"


def test_a_folder_that_is_a_file_is_named(host: WorkerHost) -> None:
    report, detail = host.run(command=["true"], working_directory="/etc/passwd")
    assert (report.kind, report.exit_code) == ("not_started", 126)
    assert detail["message"] == "working_directory /etc/passwd is not a folder"


def test_arguments_that_are_too_long_are_refused_clearly(host: WorkerHost) -> None:
    report, detail = host.run(command=["true", "x" * 200_000])
    assert (report.kind, report.exit_code) == ("not_started", 126)
    assert "longer than the kernel allows (128 KiB for one word" in detail["message"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"command": "not a list"}, "not a task specification"),
        ({}, "neither a command nor a handler"),
        ({"command": []}, "neither a command nor a handler"),
        ({"command": ["a\0b"]}, "cannot execute a\ufffdb: embedded null byte"),
        ({"command": ["true"], "environment": {"a=b": "c"}}, "illegal environment variable name"),
        ({"handler": "math:sin", "environment": {"a=b": "c"}}, "environment: "),
    ],
)
def test_something_that_is_no_task_fails_and_the_worker_goes_on(
    host: WorkerHost, spec: dict[str, Any], why: str
) -> None:
    report, detail = host.run(**spec)
    assert (report.outcome, report.kind) == ("failed", "not_started")
    assert why in detail["message"]
    assert host.run(command=["true"])[0].outcome == "succeeded"


# --- surroundings ---------------------------------------------------------------------------------


def test_the_environment_is_the_plan_the_task_and_ours(host: WorkerHost) -> None:
    host.submit(
        {"command": ["env", "-0"], "environment": {"FROM_BOTH": "task", "FROM_TASK": "task"}},
        first_id=41,
    )
    (report,) = host.finished()
    pairs = host.detail(report)["stdout"].split("\ufffd")  # the NUL of env -0
    found = dict(pair.split("=", 1) for pair in pairs if pair)
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    expected = {
        "FROM_PLAN": "plan",
        "FROM_BOTH": "task",
        "FROM_TASK": "task",
        "MITOSIS_MANAGER_ID": "manager-1",
        "MITOSIS_WORKER_MODE": "ipc",
        "MITOSIS_WORKER_ENDPOINT": host.endpoint,
        "MITOSIS_WORKER_ID": "0",
        "MITOSIS_CPUS": cpus,
        "MITOSIS_TASK_ID": "41",
        "MITOSIS_TASK_UUID": str(task_uuid(GROUP_NUMBER, 41)),
        "MITOSIS_TASK_ATTEMPT": "1",
        "MITOSIS_TASK_GROUP_UUID": host.setup.task_group_id,
        "MITOSIS_TASK_GROUP_NAME": "campaign",
        "MITOSIS_GROUP_NAME": "lab",
        "PATH": os.environ["PATH"],
    }
    assert {name: found.get(name) for name in expected} == expected


def test_no_setting_of_the_agent_reaches_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MITOSIS_DATABASE_URL", "postgresql://secret")
    with worker_host(tmp_path) as host:
        host.spawn()
        _, detail = host.run(command=["env"])
        assert "secret" not in detail["stdout"]


def test_a_command_has_nothing_open_but_its_three_streams(host: WorkerHost) -> None:
    _, detail = host.run(command=["sh", "-c", "ls /proc/$$/fd; read line || echo no input"])
    assert detail["stdout"] == "0\n1\n2\nno input\n"


def test_a_command_gets_default_signals(host: WorkerHost) -> None:
    _, detail = host.run(command=["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"])
    masks = {name: int(mask, 16) for name, mask in map(str.split, detail["stdout"].splitlines())}
    assert {name: mask & ~KEPT_BY_LIBC for name, mask in masks.items()} == {
        "SigBlk:": 0,
        "SigIgn:": 0,
    }


def test_the_scratch_folder_is_where_commands_run_and_is_emptied(host: WorkerHost) -> None:
    host.run(command=["sh", "-c", "mkdir sub; echo x > sub/file; chmod 0 sub"])
    _, detail = host.run(command=["sh", "-c", 'ls -A; [ "$PWD" = "$MITOSIS_EXEC_DIR" ] && pwd'])
    assert detail["stdout"] == f"{host.setup.scratch_folder}/slot-0\n"


def test_a_task_may_delete_its_scratch_folder(host: WorkerHost) -> None:
    host.run(command=["sh", "-c", 'rm -rf "$PWD"'])
    assert host.run(command=["true"])[0].outcome == "succeeded"


def test_a_working_directory_is_entered_and_not_swept(host: WorkerHost, tmp_path: Path) -> None:
    host.run(command=["sh", "-c", "echo x > kept"], working_directory=str(tmp_path))
    assert (tmp_path / "kept").read_text() == "x\n"


# --- output ---------------------------------------------------------------------------------------


def test_both_streams_are_kept_apart_and_counted(host: WorkerHost) -> None:
    _, detail = host.run(command=["sh", "-c", "echo out; echo error >&2; exit 1"])
    assert (detail["stdout"], detail["stderr"]) == ("out\n", "error\n")
    assert (detail["stdout_bytes"], detail["stderr_bytes"]) == (4, 6)


def test_of_large_output_the_end_is_kept_and_all_is_counted(host: WorkerHost) -> None:
    _, detail = host.run(command=["sh", "-c", "head -c 300000000 /dev/zero | tr '\\0' x; echo end"])
    assert detail["stdout_bytes"] == 300_000_004
    assert detail["stdout"] == "x" * (TAIL - 4) + "end\n"
    assert host.memory_bytes() < 60_000_000


def test_binary_output_becomes_text(host: WorkerHost) -> None:
    _, detail = host.run(command=["printf", r"a\000b\377c\303\244"])
    assert detail["stdout"] == "a\ufffdb\ufffdcä"
    assert detail["stdout_bytes"] == 7


def test_output_can_be_reopened_by_name(host: WorkerHost) -> None:
    _, detail = host.run(command=["sh", "-c", "echo one; echo two > /dev/stdout; echo three"])
    assert detail["stdout"] == "one\ntwo\nthree\n"


def test_output_of_one_task_never_appears_in_the_next(host: WorkerHost) -> None:
    host.run(command=["sh", "-c", "yes | head -c 100000"])
    _, detail = host.run(command=["true"])
    assert "stdout" not in detail


# --- nothing stays --------------------------------------------------------------------------------


def test_a_background_child_that_holds_the_output_open_does_not_hold_the_slot(
    host: WorkerHost,
) -> None:
    report, detail = host.run(command=["sh", "-c", "sleep 600 & echo $!"])
    assert report.outcome == "succeeded"
    assert (report.finished_at or 1e12) - (report.started_at or 0) < 5
    assert gone(int(detail["stdout"]))


def test_a_daemonised_grandchild_is_gone_before_the_task_is_over(
    host: WorkerHost, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    daemon = f"setsid sh -c 'echo $$ > {pid_file}; trap \"\" TERM HUP; sleep 600' &"
    report, _ = host.run(
        command=["sh", "-c", f"({daemon}) & while [ ! -s {pid_file} ]; do sleep 0.01; done"]
    )
    assert report.outcome == "succeeded"
    assert gone(int(pid_file.read_text()))


# --- time -----------------------------------------------------------------------------------------


def test_a_timeout_sends_sigterm_to_the_group(host: WorkerHost) -> None:
    script = "trap 'echo ended; exit 5' TERM; sleep 600 & wait"
    report, detail = host.run(command=["sh", "-c", script], timeout_seconds=0.2)
    assert (report.outcome, report.kind, report.exit_code) == ("failed", "timeout", 5)
    assert detail["stdout"] == "ended\n"
    assert detail["message"] == "ran longer than its timeout of 0.2 s (exit code 5)"


@pytest.mark.parametrize("seconds", [30 * 86_400, MAX_TASK_SECONDS])
def test_a_timeout_of_weeks_and_years_is_waited_for(host: WorkerHost, seconds: float) -> None:
    long = {"timeout_seconds": seconds, "kill_grace_seconds": seconds}
    report, _ = host.run(command=["sleep", "0.1"], **long)
    assert (report.outcome, report.exit_code) == ("succeeded", 0)


@pytest.mark.spec("C-10")
def test_what_ignores_sigterm_is_killed_after_the_grace_with_all_its_children(
    host: WorkerHost,
) -> None:
    script = "trap '' TERM; sh -c 'echo $$; sleep 600' & setsid sleep 600 & wait; wait"
    report, detail = host.run(
        command=["sh", "-c", script], timeout_seconds=0.2, kill_grace_seconds=0.3
    )
    assert (report.kind, report.signal) == ("timeout", signal.SIGKILL)
    assert 0.5 <= (report.finished_at or 0) - (report.started_at or 0) < 5
    assert gone(int(detail["stdout"]))


def test_a_stopped_command_hears_its_timeout(host: WorkerHost) -> None:
    report, _ = host.run(command=["sh", "-c", "kill -STOP $$"], timeout_seconds=0.2)
    assert (report.kind, report.signal) == ("timeout", signal.SIGTERM)


@pytest.mark.spec("C-10")
def test_the_rest_of_the_group_has_the_grace_too(host: WorkerHost, tmp_path: Path) -> None:
    done = tmp_path / "done"
    child = f"trap 'sleep 0.3; echo x > {done}; exit' TERM; while :; do sleep 0.01; done"
    script = f'sh -c "{child}" & wait'
    report, _ = host.run(command=["sh", "-c", script], timeout_seconds=0.3)
    assert (report.kind, report.signal) == ("timeout", signal.SIGTERM)
    assert done.exists()


def test_a_started_task_says_when_it_is_overdue(host: WorkerHost) -> None:
    host.submit({"command": ["true"], "timeout_seconds": 5, "kill_grace_seconds": 3})
    assert host.started().overdue_seconds == pytest.approx(10)
    host.finished()
