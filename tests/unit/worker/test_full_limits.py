"""Which limit of processes is reached."""

import resource
from pathlib import Path

import pytest

from mitosis.worker.full_limits import full_limit


def group(folder: Path, most: str, now: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pids.max").write_text(most)
    (folder / "pids.current").write_text(f"{now}\n")


@pytest.mark.parametrize(
    ("line", "top"),
    [("0::/a/b", "."), ("5:devices:/x\n7:pids:/a/b", "pids"), ("7:cpu,pids:/a/b", "pids")],
)
def test_the_innermost_group_that_is_full_is_named(tmp_path: Path, line: str, top: str) -> None:
    group(tmp_path / top / "a/b", "40\n", 39)
    group(tmp_path / top / "a", "60\n", 60)
    group(tmp_path / top, "max\n", 500)
    assert full_limit(line, tmp_path) == "the pids cgroup /a has 60 of 60 processes and threads"
    group(tmp_path / top / "a/b", "40\n", 40)
    assert full_limit(line, tmp_path) == "the pids cgroup /a/b has 40 of 40 processes and threads"


def test_without_a_full_group_the_limits_that_are_left_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(tmp_path / "a", "max\n", 500)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (77, 77))
    assert (
        full_limit("0::/a", tmp_path) == "its user may have 77 processes and threads (RLIMIT_NPROC)"
    )
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert f"kernel.pid_max is {most}, kernel.threads-max is " in full_limit("0::/a", tmp_path)
