"""The folders of a manager: one process at a time, and no run folder left behind."""

import fcntl
from pathlib import Path

import pytest

from mitosis.contracts.errors import ConfigurationError, ManagerIdInUse
from mitosis.execution.run_folder import LOCK, HostFolders, make_private

MANAGER = "00000000-0000-0000-0000-000000000001"


def locked(tmp_path: Path, state: str = "state") -> HostFolders:
    return HostFolders.lock(MANAGER, tmp_path / state, tmp_path / "run")


def test_the_run_folder_goes_and_the_state_folder_stays(tmp_path: Path) -> None:
    with locked(tmp_path) as folders:
        assert folders.run_dir.stat().st_mode & 0o777 == 0o700
        run_dir = folders.run_dir
    assert not run_dir.exists()
    assert (tmp_path / "state").is_dir()


@pytest.mark.parametrize("state", ["state", "another"])
def test_a_second_process_is_refused_and_takes_nothing_away(tmp_path: Path, state: str) -> None:
    with locked(tmp_path) as folders:
        with pytest.raises(ManagerIdInUse, match=MANAGER):
            locked(tmp_path, state)
        assert (folders.run_dir / LOCK).exists()


def test_a_lock_on_a_file_that_is_gone_is_worth_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder removes the file while the next one has opened it and not yet locked it."""
    first = locked(tmp_path)
    flock = fcntl.flock

    def flock_after_the_release(descriptor: int, operation: int) -> None:
        first.release()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_after_the_release)
    with locked(tmp_path) as second:
        assert (second.run_dir / LOCK).exists()
        with pytest.raises(ManagerIdInUse):
            locked(tmp_path)


@pytest.mark.parametrize("what", ["a link", "a file"])
def test_what_is_not_a_folder_of_ours_is_refused(tmp_path: Path, what: str) -> None:
    if what == "a link":
        (tmp_path / "state").symlink_to(tmp_path)
    else:
        (tmp_path / "state").touch()
    with pytest.raises(ConfigurationError, match="must be a folder of this user"):
        locked(tmp_path)


@pytest.mark.spec("S002-156")
def test_one_process_owns_the_folders_of_a_manager(tmp_path: Path) -> None:
    with HostFolders.lock("manager-1", tmp_path / "state", tmp_path) as folders:
        assert folders.run_dir.stat().st_mode & 0o777 == 0o700
        assert folders.endpoint.startswith(f"ipc://{folders.run_dir}/")
        with pytest.raises(ManagerIdInUse):
            HostFolders.lock("manager-1", tmp_path / "another", tmp_path)
        with pytest.raises(ManagerIdInUse):
            HostFolders.lock("manager-2", tmp_path / "state", tmp_path)
        with HostFolders.lock("manager-2", tmp_path / "another", tmp_path):
            pass
    with HostFolders.lock("manager-1", tmp_path / "state", tmp_path):
        pass


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    with pytest.raises(ConfigurationError, match="longer than 107 bytes"):
        HostFolders.lock("manager-1", tmp_path / "state", deep)
    assert not deep.exists()


def test_a_folder_is_made_private_or_refused(tmp_path: Path) -> None:
    open_one = tmp_path / "open"
    open_one.mkdir(mode=0o755)
    make_private(open_one)
    assert open_one.stat().st_mode & 0o777 == 0o700
    link = tmp_path / "link"
    link.symlink_to(open_one)
    with pytest.raises(ConfigurationError, match="must be a folder of this user"):
        make_private(link)
