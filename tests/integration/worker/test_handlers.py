"""Python handlers in a real worker: arguments, results, errors, output, and the ways to end one."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.outcome import ExitReason
from mitosis.ipc.messages import CancelTask, Goodbye
from mitosis.worker.loop import EXIT_STUCK
from mitosis.worker.zygote_protocol import Exited, Ready
from tests.support.checkout import ROOT
from tests.support.waiting import wait_until
from tests.support.worker_host import GROUP_NUMBER, WorkerHost, gone, worker_host

SAMPLES = "tests.support.sample_handlers"
SETUP: dict[str, Any] = {"handler_modules": (SAMPLES,), "python_path": (str(ROOT),)}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHost]:
    with worker_host(tmp_path_factory.mktemp("host"), **SETUP) as host:
        assert host.hear(Ready).forks
        host.spawn()
        yield host


@pytest.fixture
def own_host(tmp_path: Path) -> Iterator[WorkerHost]:
    """For tests whose worker dies."""
    with worker_host(tmp_path, **SETUP) as host:
        host.spawn()
        yield host


def call(host: WorkerHost, name: str, *arguments: Any, **spec: Any) -> tuple[Any, dict[str, Any]]:
    """Run one sample handler with positional arguments."""
    return host.run(handler=f"{SAMPLES}:{name}", arguments=list(arguments), **spec)


# --- arguments and results ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "result"), [({"a": 1, "b": 2}, 3), ([1, 2], 3), ([5], 5), ({"a": 7}, 7)]
)
def test_arguments_are_keywords_or_positions(host: WorkerHost, arguments: Any, result: int) -> None:
    report, detail = host.run(handler=f"{SAMPLES}:add", arguments=arguments)
    assert (report.outcome, report.kind, detail["result"]) == ("succeeded", None, result)


@pytest.mark.parametrize("value", [None, True, 0, -1.5, "ä\n\\u0000", [1, [2]], {"k": {"l": []}}])
def test_any_json_comes_back_as_it_went_in(host: WorkerHost, value: Any) -> None:
    assert call(host, "give", value)[1]["result"] == value


def test_no_arguments_are_none_at_all(host: WorkerHost) -> None:
    assert host.run(handler=f"{SAMPLES}:Nested.inner")[1]["result"] == "inner"


def test_a_coroutine_is_awaited(host: WorkerHost) -> None:
    assert call(host, "add_later", 2, 3)[1]["result"] == 5


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("not_json", "is not JSON: Object of type object is not JSON serializable"),
        ("not_a_number", "is not JSON: Out of range float values"),
        ("nul", "contains a NUL character"),
        ("halved", "contains a lone surrogate"),
        ("deep", "is nested deeper than 190 levels"),
        ("clashing", "has two keys that are '1' in JSON"),
        ("large", "has 1,000,003 bytes of JSON; the limit is 1,000,000"),
    ],
)
def test_a_result_that_cannot_be_kept_is_an_error_that_says_why(
    host: WorkerHost, name: str, why: str
) -> None:
    report, detail = call(host, name)
    assert (report.outcome, report.kind) == ("failed", "result_not_storable")
    assert why in detail["message"]
    assert "result" not in detail
    assert call(host, "give", 1)[1]["result"] == 1


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.spec("S001-12")
def test_an_exception_fails_the_task_and_its_traceback_is_kept(host: WorkerHost) -> None:
    report, detail = call(host, "fail", "no good\0")
    assert (report.outcome, report.kind) == ("failed", "handler_error")
    assert detail["message"] == "ValueError: no good\ufffd"
    first, *_, last = detail["traceback"].strip().splitlines()
    assert first == "Traceback (most recent call last):"
    assert "sample_handlers.py" in detail["traceback"]
    assert "mitosis/worker" not in detail["traceback"]
    assert last == "ValueError: no good\ufffd"


def test_a_long_message_is_bounded(host: WorkerHost) -> None:
    _, detail = call(host, "fail", "x" * 500_000)
    assert len(detail["message"]) < 3_000
    assert len(detail["traceback"]) < 17_000


def test_wrong_arguments_are_the_handlers_error(host: WorkerHost) -> None:
    report, detail = call(host, "add", 1, 2, 3)
    assert report.kind == "handler_error"
    assert "takes from 1 to 2 positional arguments" in detail["message"]


@pytest.mark.parametrize(
    ("code", "outcome", "exit_code"),
    [(None, "succeeded", None), (0, "succeeded", None), (3, "failed", 3), ("text", "failed", 1)],
)
def test_sys_exit_counts_as_for_a_program(
    host: WorkerHost, code: Any, outcome: str, exit_code: int | None
) -> None:
    report, _ = call(host, "leave", code)
    assert (report.outcome, report.exit_code) == (outcome, exit_code)
    assert call(host, "add", 1)[0].outcome == "succeeded"


@pytest.mark.parametrize("name", ["interrupt", "interrupt_async"])
def test_keyboard_interrupt_is_a_death_by_sigint_and_the_worker_goes_on(
    host: WorkerHost, name: str
) -> None:
    report, detail = call(host, name)
    assert (report.kind, report.signal) == ("signal", signal.SIGINT)
    assert detail["message"] == "ended by SIGINT"
    assert call(host, "add", 1, 2)[0].outcome == "succeeded"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no.such.module:f", "cannot import no.such.module: ModuleNotFoundError"),
        (f"{SAMPLES}:absent", f"{SAMPLES} has no absent"),
        (f"{SAMPLES}:Nested.absent", f"{SAMPLES} has no Nested.absent"),
        (f"{SAMPLES}:SAMPLES", f"{SAMPLES} has no SAMPLES"),
        ("math:pi", "math:pi is not callable"),
    ],
)
def test_a_handler_that_is_not_there_is_named(host: WorkerHost, name: str, why: str) -> None:
    report, detail = host.run(handler=name)
    assert (report.outcome, report.kind) == ("failed", "not_started")
    assert why in detail["message"]


def test_a_handler_that_ends_its_process_costs_the_worker(own_host: WorkerHost) -> None:
    own_host.submit(
        {"handler": f"{SAMPLES}:add", "arguments": [1]},
        {"handler": f"{SAMPLES}:vanish", "arguments": [9]},
        {"handler": f"{SAMPLES}:add", "arguments": [1]},
        first_id=40,
    )
    exited = own_host.hear(Exited)
    assert exited.running == (41, 1)  # its TaskStarted may not have left the process
    assert ExitReason.from_wait_status(exited.wait_status).number == 9


def test_a_crash_in_c_code_leaves_the_python_traceback(own_host: WorkerHost) -> None:
    call(own_host, "speak")
    own_host.submit({"handler": f"{SAMPLES}:crash"})
    exited = own_host.hear(Exited)
    assert ExitReason.from_wait_status(exited.wait_status).number == signal.SIGSEGV
    first, *rest = exited.stderr_tail.splitlines()
    assert first == "about to crash"
    assert "Fatal Python error: Segmentation fault" in rest
    assert any("sample_handlers.py" in line and "in crash" in line for line in rest)


# --- surroundings ---------------------------------------------------------------------------------


def test_a_handler_can_ask_which_task_it_is(host: WorkerHost) -> None:
    scratch = f"{host.setup.scratch_folder}/slot-0"
    _, detail = host.run(handler=f"{SAMPLES}:context", environment={"EXTRA": "1"})
    assert detail["result"] == {
        "task_id": 1,
        "task_uuid": str(task_uuid(GROUP_NUMBER, 1)),
        "attempt": 1,
        "task_group_name": "campaign",
        "group_name": "lab",
        "scratch_folder": scratch,
        "folder": scratch,
        "extra": "1",
    }
    _, detail = host.run(handler=f"{SAMPLES}:context", working_directory="/usr")
    assert (detail["result"]["folder"], detail["result"]["extra"]) == ("/usr", None)


def test_a_missing_folder_is_named(host: WorkerHost) -> None:
    report, detail = call(host, "pid", working_directory="/no/such/folder")
    assert report.kind == "not_started"
    assert detail["message"] == "working_directory /no/such/folder: No such file or directory"


def test_handlers_share_one_warm_worker(host: WorkerHost) -> None:
    pids = {call(host, "pid")[1]["result"] for _ in range(3)}
    assert pids == {host.worker_pid}


def test_a_worker_is_renewed_for_what_a_failed_import_left_and_says_so(
    own_host: WorkerHost,
) -> None:
    report, detail = own_host.run(handler="tests.support.broken_handlers:any")
    assert (report.outcome, report.kind) == ("failed", "not_started")
    assert "a library of this module is missing" in detail["message"]
    goodbye = own_host.receive(Goodbye)
    assert goodbye.renewed_for == "a task left a thread, by an import that failed"


def test_output_of_the_handler_and_its_children_is_kept(host: WorkerHost) -> None:
    _, detail = call(host, "speak")
    assert sorted(detail["stdout"].split()) == ["child", "printed", "written"]
    assert (detail["stderr"], detail["stderr_bytes"]) == ("complained\n", 11)
    assert "stdout" not in call(host, "pid")[1]


@pytest.mark.parametrize("vandal", ["close_streams", "replace_streams", "change_surroundings"])
def test_the_next_task_finds_everything_as_it_was(own_host: WorkerHost, vandal: str) -> None:
    _, before = call(own_host, "context")
    assert call(own_host, vandal)[0].outcome == "succeeded"
    assert call(own_host, "context")[1]["result"] == before["result"]
    _, detail = call(own_host, "speak")
    assert sorted(detail["stdout"].split()) == ["child", "printed", "written"]
    assert detail["stderr"] == "complained\n"


def test_gigabytes_of_output_do_not_become_memory(host: WorkerHost) -> None:
    report, detail = call(host, "shout", 1_000)
    assert report.outcome == "succeeded"
    assert detail["stdout_bytes"] == 1_000_000_000
    assert detail["stdout"] == ("x" * 8191) + "\n"
    assert host.memory_bytes() < 60_000_000


def test_children_of_a_handler_end_with_its_task(host: WorkerHost) -> None:
    report, detail = call(host, "leave_children")
    assert report.outcome == "succeeded"
    assert all(gone(pid) for pid in detail["result"])


# --- ending one -----------------------------------------------------------------------------------


def test_a_handler_is_interrupted_by_its_timeout_and_may_clean_up(
    host: WorkerHost, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    report, detail = call(host, "clean_up", str(note), timeout_seconds=0.2)
    assert (report.outcome, report.kind) == ("failed", "timeout")
    assert detail["message"] == "ran longer than its timeout of 0.2 s"
    assert note.read_text() == "cleaned"
    assert report.finished_at - report.started_at < 5


def test_a_coroutine_is_cancelled_by_its_timeout(host: WorkerHost, tmp_path: Path) -> None:
    note = tmp_path / "note"
    report, _ = call(host, "sleep_async", str(note), timeout_seconds=0.2)
    assert (report.outcome, report.kind) == ("failed", "timeout")
    assert note.read_text() == "cleaned"


def test_a_handler_that_swallows_the_interrupt_has_still_timed_out(host: WorkerHost) -> None:
    report, detail = call(host, "swallow", timeout_seconds=0.2)
    assert (report.outcome, report.kind) == ("failed", "timeout")
    assert "result" not in detail


def test_a_timeout_that_is_not_reached_changes_nothing(host: WorkerHost) -> None:
    report, detail = call(host, "sleep", 0.15, timeout_seconds=30)
    assert (report.outcome, detail["result"]) == ("succeeded", "slept")


def test_a_handler_that_never_stops_is_reported_and_its_worker_ends(
    own_host: WorkerHost, tmp_path: Path
) -> None:
    report, detail = call(
        own_host,
        "stubborn",
        str(tmp_path / "note"),
        timeout_seconds=0.2,
        kill_grace_seconds=0.2,
    )
    assert (report.outcome, report.kind) == ("failed", "timeout")
    assert "its worker was ended" in detail["message"]
    exited = own_host.hear(Exited)
    assert ExitReason.from_wait_status(exited.wait_status).number == EXIT_STUCK


def test_a_running_handler_is_cancelled(host: WorkerHost, tmp_path: Path) -> None:
    note = tmp_path / "note"
    host.submit({"handler": f"{SAMPLES}:clean_up", "arguments": [str(note)]})
    host.started()
    host.order(CancelTask, AttemptKey(1, 1), 5.0, "not wanted")
    (report,) = host.finished()
    assert (report.outcome, report.kind) == ("cancelled", "cancelled")
    assert host.detail(report)["message"] == "cancelled: not wanted"
    assert note.read_text() == "cleaned"


def test_a_stubborn_handler_is_cancelled_with_its_worker(
    own_host: WorkerHost, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    own_host.submit({"handler": f"{SAMPLES}:stubborn", "arguments": [str(note)]})
    own_host.started()
    wait_until(note.exists)
    own_host.order(CancelTask, AttemptKey(1, 1), 0.2, "not wanted")
    (report,) = own_host.finished()
    assert (report.outcome, report.kind) == ("cancelled", "cancelled")
    assert gone(own_host.hear(Exited).pid)


def test_reports_of_earlier_tasks_do_not_wait_for_a_long_handler(own_host: WorkerHost) -> None:
    quick, slow = f"{SAMPLES}:pid", f"{SAMPLES}:sleep"
    own_host.submit({"handler": quick}, {"handler": slow, "arguments": [600]})
    assert [report.task_id for report in own_host.finished()] == [1]
    own_host.worker_kill(signal.SIGKILL)
