"""A task with too many processes fails and says so; its worker and its neighbour go on."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mitosis.worker import process_limit
from mitosis.worker.process_limit import default_limit, pids_folder
from tests.support.checkout import ROOT
from tests.support.waiting import wait_until
from tests.support.worker_host import WorkerHost, is_over, worker_host

SAMPLES = "tests.support.sample_handlers"
LIMIT = 40
BOMB = f"for i in $(seq {LIMIT * 5}); do sleep 20 & done; wait"
"""Bounded, in case that nothing stops it."""
WAYS = [
    "counted",
    pytest.param(
        "cgroup",
        marks=pytest.mark.skipif(pids_folder() is None, reason="no pids cgroup can be made"),
    ),
]


@pytest.fixture(params=WAYS, scope="module")
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerHost]:
    module = "tests.support.no_cgroups" if request.param == "counted" else SAMPLES
    setup = {"handler_modules": (module,), "python_path": (str(ROOT),)}
    folder = tmp_path_factory.mktemp("host")
    with worker_host(folder, max_processes_per_worker=LIMIT, **setup) as host:
        host.spawn()
        group = pids_groups_of(host.worker_pid)
        assert ("mitosis-manager-1." in group) is (request.param == "cgroup"), group
        yield host


def pids_groups_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


@pytest.mark.spec("S001-50")
def test_a_fork_bomb_fails_with_the_reason(host: WorkerHost) -> None:
    report, detail = host.run(command=["sh", "-c", BOMB], kill_grace_seconds=60)
    assert (report.outcome, report.kind) == ("failed", "process_limit")
    assert "more than 40 processes and threads at the same time" in detail["message"]
    assert "max_processes_per_worker" in detail["message"]


def test_a_fork_bomb_of_a_handler_fails_with_the_reason(host: WorkerHost) -> None:
    before = host.worker_pid
    report, detail = host.run(handler=f"{SAMPLES}:status_of", arguments=[["sh", "-c", BOMB]])
    assert (report.outcome, report.kind) == ("failed", "process_limit"), detail
    assert host.run(handler=f"{SAMPLES}:pid")[1]["result"] == before


def test_a_command_that_ends_before_its_worker_looks_has_still_gone_too_far(
    host: WorkerHost, tmp_path: Path
) -> None:
    go, note = tmp_path / "go", tmp_path / "note"
    wait = f"echo $$ > {note}.new; mv {note}.new {note}; until [ -e {go} ]; do sleep 0.02; done"
    host.submit({"command": ["sh", "-c", f"{wait}; ({BOMB.removesuffix('; wait')}); exit 0"]})
    wait_until(note.exists)
    leader = int(note.read_text())
    host.worker_kill(signal.SIGSTOP)
    try:
        go.touch()
        wait_until(lambda: is_over(leader))
    finally:
        host.worker_kill(signal.SIGCONT)
    (report,) = host.finished()
    assert (report.outcome, report.kind) == ("failed", "process_limit")


def test_a_handler_that_ends_before_its_worker_looks_has_still_gone_too_far(
    host: WorkerHost,
) -> None:
    bomb = f"{BOMB.removesuffix('; wait')}; exit 0"
    report, detail = host.run(handler=f"{SAMPLES}:status_of", arguments=[["sh", "-c", bomb]])
    assert (report.outcome, report.kind) == ("failed", "process_limit"), detail


def test_as_many_as_allowed_are_no_failure_also_again(host: WorkerHost) -> None:
    some = f"for i in $(seq {LIMIT - 5}); do sleep 0.3 & done; wait"
    for _ in range(2):
        assert host.run(command=["sh", "-c", some])[0].outcome == "succeeded"


def test_the_default_leaves_half_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_limit, "_room", lambda: 32_768)
    assert [default_limit(count) for count in (1, 4, 16, 10_000)] == [4096, 4096, 1024, 64]
