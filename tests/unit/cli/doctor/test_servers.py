"""What `mitosis doctor` makes of the processes that run."""

from datetime import UTC, datetime
from typing import Any

from mitosis.cli.doctor.check import Check
from mitosis.cli.doctor.servers import process_checks
from mitosis.contracts.processes import ProcessInfo


def process(kind: Any, version: str | None = "1.2.0", **facts: Any) -> ProcessInfo:
    given = {"kind": kind, "version": version, "started_at": datetime.now(UTC)}
    usual = {"host_name": "h", "pid": 4, "silent_seconds": 1.0}
    return ProcessInfo.model_validate(given | usual | facts)


def checks(*processes: ProcessInfo) -> dict[str, Check]:
    return {check.name: check for check in process_checks(processes)}


def test_processes_of_one_version_are_shown_with_it() -> None:
    found = checks(process("api"), process("api", pid=5), process("control", silent_seconds=20.4))
    assert {check.state for check in found.values()} == {"ok"}
    assert found["api processes"].found == "1.2.0 on h, process 4; 1.2.0 on h, process 5"
    assert found["control processes"].found == "1.2.0 on h, process 4, silent for 20 s"


def test_different_versions_are_an_upgrade_that_is_not_over() -> None:
    earlier = process("control", None, host_name=None, pid=None)
    found = checks(process("api"), earlier)
    assert {check.state for check in found.values()} == {"warn"}
    assert found["control processes"].found == "an earlier version"
    assert "newer version" in found["control processes"].advice


def test_a_missing_control_process_is_said_with_how_to_start_one() -> None:
    found = checks(process("api"))
    assert found["api processes"].state == "ok"
    assert (found["control processes"].state, found["control processes"].found) == (
        "warn",
        "none runs",
    )
    assert "mitosis control" in found["control processes"].advice
