"""Where cgroups with a limit of processes can be made, and how many processes a task may have."""

import os
import resource
from pathlib import Path

import pytest

from mitosis.worker.process_limit import PidsGroup, ProcessLimit, pids_folder


def version_2(folder: Path, controllers: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.subtree_control").write_text(controllers)
    (folder / "cgroup.procs").touch()
    return folder


def test_version_1_has_the_group_of_this_process_or_the_root_of_a_namespace(tmp_path: Path) -> None:
    text = "4:memory:/service\n3:pids:/service/agent\n0::/"
    (tmp_path / "pids").mkdir()
    assert pids_folder(text, tmp_path) == tmp_path / "pids"
    (tmp_path / "pids/service/agent").mkdir(parents=True)
    assert pids_folder(text, tmp_path) == tmp_path / "pids/service/agent"


@pytest.mark.parametrize(
    ("own", "above", "found"),
    [
        ("cpu pids", "", "service/agent"),
        ("", "pids memory", "service"),
        ("", "memory", None),
    ],
)
def test_version_2_needs_the_controller_in_a_group(
    tmp_path: Path, own: str, above: str, found: str | None
) -> None:
    version_2(tmp_path / "service", above)
    version_2(tmp_path / "service/agent", own)
    expected = None if found is None else tmp_path / found
    assert pids_folder("0::/service/agent", tmp_path) == expected


def test_a_worker_confined_by_version_2_stays_in_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = version_2(tmp_path / "agent", "pids cpuset")
    monkeypatch.setattr("mitosis.worker.process_limit.pids_folder", lambda: folder)
    assert PidsGroup.enter("slot", 10, confined=True) is None
    assert not (folder / "slot").exists()


@pytest.mark.parametrize("host_is_full", [False, True])
def test_a_process_that_may_open_no_file_is_not_over_its_limit(
    monkeypatch: pytest.MonkeyPatch, host_is_full: bool
) -> None:
    """A handler may have lowered the limit of open files for good; its task keeps its result."""
    if host_is_full:  # then its own processes are counted
        monkeypatch.setattr("mitosis.worker.process_limit._threads_of_host", lambda: 11)
    limit = ProcessLimit(10, None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        exceeded = limit.exceeded()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not exceeded


def test_without_cgroups_there_is_none(tmp_path: Path) -> None:
    assert pids_folder("1:name=systemd:/\n0::/", tmp_path) is None
