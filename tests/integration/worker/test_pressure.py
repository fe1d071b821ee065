"""Tasks that print or return too much, and commands that are too long: bounded, and said."""

from collections.abc import Iterator
from typing import Any

import pytest

from mitosis.worker.report import MAX_RESULT_BYTES
from mitosis.worker.zygote_protocol import Setup
from tests.support.worker_host import WorkerHost, worker_host

TAIL = Setup(
    manager_id="",
    endpoint="",
    task_group_id="",
    task_group_number=0,
    task_group_name="",
    group_name="",
    scratch_folder="",
    run_folder="",
).output_tail_bytes
GIGABYTE = 1_000_000_000


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHost]:
    with worker_host(
        tmp_path_factory.mktemp("host"), handler_modules=("tests.support.sample_handlers",)
    ) as host:
        host.spawn()
        yield host


def test_two_gigabytes_on_both_streams_are_counted_and_dropped(host: WorkerHost) -> None:
    before = host.memory_bytes()
    loud = "head -c 1000000000 /dev/zero; printf end"
    report, detail = host.run(command=["sh", "-c", f"({loud}) & ({loud}) >&2; wait"])
    assert report.outcome == "succeeded"
    assert (detail["stdout_bytes"], detail["stderr_bytes"]) == (GIGABYTE + 3, GIGABYTE + 3)
    for stream in ("stdout", "stderr"):
        assert detail[stream].endswith("end")
        assert len(detail[stream]) <= TAIL
    assert host.memory_bytes() - before < 20_000_000


def test_binary_without_an_end_of_line_is_kept_readable(host: WorkerHost) -> None:
    _, detail = host.run(command=["head", "-c", "5000000", "/dev/urandom"])
    assert detail["stdout_bytes"] == 5_000_000
    assert len(detail["stdout"].encode()) <= 3 * TAIL
    assert "\0" not in detail["stdout"]


@pytest.mark.parametrize("where", ["argument", "arguments", "environment"])
def test_a_command_that_is_too_long_says_so(host: WorkerHost, where: str) -> None:
    word = "x" * 140_000
    cases: dict[str, dict[str, Any]] = {
        "argument": {"command": ["true", word]},
        "arguments": {"command": ["true", *["y" * 100_000] * 90]},
        "environment": {"command": ["true"], "environment": {"LONG": word}},
    }
    report, detail = host.run(**cases[where])
    assert (report.outcome, report.exit_code) == ("failed", 126)
    assert "longer than the kernel allows" in detail["message"]
    assert host.run(command=["true"])[0].outcome == "succeeded"


def test_a_result_that_is_too_large_fails_its_task_and_says_how_large(host: WorkerHost) -> None:
    report, detail = host.run(handler="builtins:list", arguments=["x" * MAX_RESULT_BYTES])
    assert report.outcome == "failed"
    assert f"the limit is {MAX_RESULT_BYTES:,}" in detail["message"]
