"""Who an agent is: incarnations, credentials, folders, checkpoints."""

import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from manager_agent.checkpoint import Checkpoints, fingerprint
from manager_agent.identity import (
    boot_id,
    hello,
    keep_incarnation,
    machine_id,
    raise_incarnation,
    read_incarnation,
    write_durably,
)
from manager_agent.registration import Credentials, ensure_registered, read_credentials
from manager_agent.run_folder import HostFolders, make_private
from mitosis.cli.stack.agent import host_name
from mitosis.contracts.errors import ConfigurationError, ManagerIdInUse
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import RegisteredManager, RegisterManager


def test_the_incarnation_rises_and_is_kept(tmp_path: Path) -> None:
    assert read_incarnation(tmp_path) == 0
    assert [raise_incarnation(tmp_path) for _ in range(3)] == [1, 2, 3]
    keep_incarnation(tmp_path, 40)  # after a take-over it continues from PostgreSQL's value
    assert raise_incarnation(tmp_path) == 41


def test_an_edited_incarnation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "incarnation").write_text("many")
    with pytest.raises(ConfigurationError, match="does not hold a number"):
        raise_incarnation(tmp_path)


def test_hello_says_where_it_runs(tmp_path: Path) -> None:
    said = hello(tmp_path, 3, take_over=True)
    assert said.incarnation == 3
    assert said.take_over
    assert said.machine_id == machine_id(tmp_path)
    assert said.boot_id == boot_id() != "unknown"
    assert said.cores == tuple(sorted(os.sched_getaffinity(0)))


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.spec("S002-107")
async def test_a_host_registers_once_and_keeps_its_token_private(tmp_path: Path) -> None:
    state, calls = tmp_path / "state", []

    async def register(spec: RegisterManager) -> RegisteredManager:
        calls.append(spec)
        return RegisteredManager.model_validate(
            {
                "manager_id": uuid4(),
                "name": "host",
                "token": "secret",
                "expires_at": "2030-01-01T00:00:00Z",
            }
        )

    first = await ensure_registered(register, state, RegisterManager(name="host"))
    assert await ensure_registered(register, state, RegisterManager(name="host")) == first
    assert len(calls) == 1
    assert (state / "manager.json").stat().st_mode & 0o777 == 0o600
    assert "secret" not in repr(first)
    assert read_credentials(state) == first
    assert Credentials(first.manager_id, "secret") == first


def test_credentials_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "manager.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="not a manager's credentials"):
        read_credentials(tmp_path)


# --- folders ----------------------------------------------------------------------------------------


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


# --- checkpoints ------------------------------------------------------------------------------------

GROUP = UUID(int=5)
SETUP = HookSpec(command=("make", "ready"))


@pytest.mark.spec("S000-143", "S000-93")
def test_a_checkpoint_holds_for_the_same_setup_on_the_same_boot_only(tmp_path: Path) -> None:
    here = Checkpoints(tmp_path / "c", "machine", "boot")
    mark = fingerprint(GROUP, SETUP)
    assert not here.holds(GROUP, mark)
    here.write(GROUP, mark)
    assert here.holds(GROUP, mark)
    assert here.prepared() == [str(GROUP)]
    assert not here.holds(GROUP, fingerprint(GROUP, HookSpec(command=("make", "other"))))
    assert not here.holds(UUID(int=6), mark)
    for other in (("machine", "next boot"), ("clone", "boot")):
        elsewhere = Checkpoints(tmp_path / "c", *other)
        assert not elsewhere.holds(GROUP, mark)
        assert elsewhere.prepared() == []
    here.forget(GROUP)
    assert not here.holds(GROUP, mark)


def test_a_broken_checkpoint_counts_as_none(tmp_path: Path) -> None:
    here = Checkpoints(tmp_path, "machine", "boot")
    (tmp_path / f"{GROUP}.json").write_bytes(b"{")
    assert not here.holds(GROUP, fingerprint(GROUP, None))
    assert here.prepared() == []


@pytest.mark.parametrize(
    ("called", "name"), [("node-7", "node-7"), (str(UUID(int=7)), f"host-{UUID(int=7)}")]
)
def test_a_machine_that_is_called_by_a_uuid_can_register(
    called: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: called)
    assert RegisterManager(name=host_name()).name == name
