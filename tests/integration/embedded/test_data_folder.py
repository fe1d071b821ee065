import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from mitosis.embedded.data_folder import (
    SOCKET_PATH_LIMIT_BYTES,
    DataFolder,
    default_run_dir,
    ed25519_private_key,
    free_port,
    own_folder,
    random_password,
    socket_path,
)
from mitosis.embedded.errors import DataFolderInUse, PortInUse, SocketPathTooLong, UnsafeFolder
from mitosis.settings import default_data_dir


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_0700_and_secrets_0600_whatever_the_umask(data_dir: Path) -> None:
    before = os.umask(0)
    try:
        folder = DataFolder(data_dir)
        folder.lock()
        made = folder.secret("password", random_password)
    finally:
        os.umask(before)
    assert mode(data_dir) == mode(folder.run) == mode(folder.part("secrets")) == 0o700
    assert mode(folder.secret_path("password")) == mode(data_dir / "lock") == 0o600
    assert folder.secret("password", random_password) == made
    folder.release()
    assert not folder.run.exists()


def test_a_wide_open_folder_of_ours_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    assert mode(own_folder(path)) == 0o700


def test_a_link_or_a_file_is_not_a_folder_of_ours(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UnsafeFolder, match="a link is not accepted"):
        own_folder(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(UnsafeFolder, match=r"cannot make the folder .*file"):
        own_folder(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.mkdir()
    os.chown(path, 65534, 65534)
    with pytest.raises(UnsafeFolder, match="belongs to user 65534, not to user 0"):
        own_folder(path)


def test_a_folder_in_use_names_the_holder(data_dir: Path) -> None:
    program = (
        "import pathlib, sys; from mitosis.embedded.data_folder import DataFolder;"
        "folder = DataFolder(pathlib.Path(sys.argv[1])); folder.lock(); print('up', flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(DataFolderInUse) as caught:
            DataFolder(data_dir).lock()
        assert str(data_dir) in str(caught.value)
        assert f"process {holder.pid}" in str(caught.value)
        assert "MITOSIS_DATA_DIR" in str(caught.value)
        holder.kill()
    folder = DataFolder(data_dir)
    folder.lock()
    assert (data_dir / "lock").read_text() == f"{os.getpid()}\n"
    folder.release()
    folder.release()


def test_ports_are_kept_and_a_taken_one_names_the_setting(data_dir: Path) -> None:
    folder = DataFolder(data_dir)
    port = folder.port("web", None, "MITOSIS_WEB_PORT")
    assert folder.port("web", None, "MITOSIS_WEB_PORT") == port
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        for wanted in (None, port):
            with pytest.raises(PortInUse, match=f"port {port} for web .* MITOSIS_WEB_PORT"):
                folder.port("web", wanted, "MITOSIS_WEB_PORT")
    assert folder.port("web", None, "MITOSIS_WEB_PORT") == port


def test_socket_path_limit_is_the_one_of_the_kernel(tmp_path: Path) -> None:
    room = SOCKET_PATH_LIMIT_BYTES - len(os.fsencode(tmp_path)) - 1
    longest = socket_path(tmp_path, "x" * room)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(longest))
    with pytest.raises(
        SocketPathTooLong, match=r"has 108 bytes, the limit is 107.*MITOSIS_RUN_DIR"
    ):
        socket_path(tmp_path, "x" * (room + 1))


def test_default_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_data_dir(uid=0) == Path("/var/lib/mitosis")
    assert default_data_dir(1000, Path("/home/u")) == Path("/home/u/.local/share/mitosis")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_run_dir(Path("/a")).parent == tmp_path
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    short = default_run_dir(Path("/a"))
    assert short.parent == Path("/tmp")
    assert short != default_run_dir(Path("/b"))
    assert len(os.fsencode(short)) < 40


def test_signing_key_is_ed25519() -> None:
    key = load_pem_private_key(ed25519_private_key(), password=None)
    assert type(key).__name__ == "Ed25519PrivateKey"


def test_a_free_port_is_none_that_the_kernel_gives_to_clients() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [free_port() for _ in range(50)]
    assert not [port for port in ports if first <= port <= last]
    assert len(set(ports)) > 40  # two stacks that start together choose different ones
