import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from mitosis.embedded import postgres as embedded
from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.errors import ConfigurationError, ProgramMissing, SocketPathTooLong
from mitosis.embedded.postgres import EmbeddedPostgres, find_postgres_bin, running_on
from tests.support.processes import descendants, living
from tests.support.waiting import wait_until_async

QUICK = {"fsync": "off"}


@pytest.fixture
def folder(data_dir: Path) -> Iterator[DataFolder]:
    folder = DataFolder(data_dir)
    folder.lock()
    yield folder
    folder.release()


@pytest.fixture
async def server(folder: DataFolder) -> AsyncIterator[EmbeddedPostgres]:
    """Quick: it survives a kill, not a power cut."""
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


async def test_password_is_needed_and_nowhere_to_be_read(
    server: EmbeddedPostgres, folder: DataFolder
) -> None:
    password = folder.secret_path("postgres-password").read_text()
    wrong = server.url().replace(f":{password}@", ":wrong@")
    assert wrong != server.url()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    for process in descendants(os.getpid()):
        assert password not in " ".join(process.cmdline())
    for log in (folder.path / "logs").iterdir():
        assert password not in log.read_text()


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
    server = EmbeddedPostgres(folder, QUICK)
    await server.start()
    await server.stop()
    pid_file, lock_file = server.data / "postmaster.pid", folder.run / ".s.PGSQL.5432.lock"
    with subprocess.Popen(["sleep", "60"]) as foreign:  # noqa: ASYNC220
        text = f"{foreign.pid}\n{server.data}\n1700000000\n5432\n{folder.run}\n\n"
        pid_file.write_text(text)
        lock_file.write_text(text)
        await server.start()
        assert query(server, "SELECT 1") == (1,)
        await server.stop()
        assert foreign.poll() is None
        foreign.kill()


async def test_an_orphaned_server_is_ended_before_the_next_one_starts(folder: DataFolder) -> None:
    """As left behind by a supervisor without a death signal; it must never be shared."""
    server = EmbeddedPostgres(folder, QUICK)
    await server.start()
    query(server, "CREATE TABLE kept AS SELECT 1 AS one")
    await server.stop()
    argv = [str(find_postgres_bin() / "postgres"), "-D", str(server.data), "-c"]
    orphan = await asyncio.create_subprocess_exec(
        *embedded.privileges(), *argv, f"unix_socket_directories={folder.run}", stderr=-3
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs other privileges")
def test_root_without_user_namespaces_gets_a_clear_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "unshare"
    fake.write_text("#!/bin/sh\necho unshare: unshare failed: Operation not permitted >&2; exit 1")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ConfigurationError, match=r"does not run as root.*MITOSIS_DATABASE_URL"):
        embedded.privileges()


async def test_two_servers_run_beside_each_other(tmp_path: Path) -> None:
    folders = [DataFolder(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        folder.lock()
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
