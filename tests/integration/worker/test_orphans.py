"""Orphans of running tasks are reaped at once; children that a task waits for keep their status."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mitosis.worker.process_tree import process_parents
from tests.support.checkout import ROOT
from tests.support.waiting import wait_until
from tests.support.worker_host import WorkerHost, worker_host

SAMPLES = "tests.support.sample_handlers"
ORPHANS = (
    "for i in $(seq 100); do (true &); done; touch made; while ! test -e go; do sleep 0.1; done"
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHost]:
    folder = tmp_path_factory.mktemp("host")
    with worker_host(folder, handler_modules=(SAMPLES,), python_path=(str(ROOT),)) as host:
        host.spawn()
        yield host


def zombies_of(pid: int) -> set[int]:
    found = set()
    for child, parent in process_parents().items():
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if parent == pid and state == "Z":
            found.add(child)
    return found


@pytest.mark.parametrize("kind", ["command", "handler"])
def test_orphans_of_a_running_task_do_not_stay_zombies(
    host: WorkerHost, tmp_path: Path, kind: str
) -> None:
    shell = ["sh", "-c", ORPHANS + "; exit 7"]
    spec: dict[str, Any] = {"command": shell}
    if kind == "handler":
        spec = {"handler": f"{SAMPLES}:status_of", "arguments": [shell]}
    host.submit({**spec, "working_directory": str(tmp_path)})
    wait_until((tmp_path / "made").exists)
    wait_until(lambda: not zombies_of(host.worker_pid), 1.0)
    (tmp_path / "go").touch()
    (report,) = host.finished()
    assert (report.exit_code, host.detail(report).get("result")) in [(7, None), (None, 7)]


@pytest.mark.parametrize("way", ["popen", "fork", "posix_spawn", "multiprocessing", "system"])
def test_a_handler_gets_the_status_of_its_own_child_however_late(
    host: WorkerHost, way: str
) -> None:
    report, detail = host.run(handler=f"{SAMPLES}:wait_late", arguments=[way])
    assert detail["result"] == 7, (report, detail)


def test_no_child_of_an_earlier_task_is_remembered(host: WorkerHost) -> None:
    for _ in range(3):
        assert host.run(command=["true"])[0].outcome == "succeeded"
    assert host.run(handler=f"{SAMPLES}:known_children")[1]["result"] == []
