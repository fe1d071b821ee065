"""A pytest plugin: one cluster of PostgreSQL with a migrated database, made once for all workers of xdist.

`initdb` and the migrations take a second of CPU time; a copy of the finished files takes a twentieth. Tests
of the first start itself do not use it.
"""

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from mitosis.embedded.data_folder import DataFolder, write_private
from mitosis.embedded.postgres import ROLE, EmbeddedPostgres
from tests.support.servers import LoopThread

PASSWORD = "postgres-password"
_PLACE = "clusters"
_exits = ExitStack()
_shared: list[Path] = []
"""The folder in which the cluster is made, in this process."""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Say to a worker where it is; xdist calls this in the process that starts the workers."""
    node.workerinput[_PLACE] = str(_place())


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, str] = getattr(config, "workerinput", {})
    _shared[:] = [Path(given[_PLACE])] if _PLACE in given else []


def pytest_unconfigure() -> None:
    _exits.close()
    _shared.clear()


def begin_with_cluster(data_dir: Path) -> None:
    """Give a data folder that is not there yet, or empty, a cluster as the first start leaves it behind."""
    made = DataFolder(_made(), _place() / "run")
    folder = DataFolder(data_dir)
    write_private(folder.secret_path(PASSWORD), made.secret_path(PASSWORD).read_bytes())
    subprocess.run(["cp", "-a", made.path / "postgres", folder.path], check=True)


def _place() -> Path:
    if not _shared:
        _shared.append(Path(_exits.enter_context(TemporaryDirectory(prefix="mt-", dir="/tmp"))))
        _shared[0].chmod(0o711)
    return _shared[0]


def _made() -> Path:
    """Return the data folder with the cluster; the first that asks makes it."""
    place = _place()
    with _locked(place / "lock"):
        if not (done := place / "done").exists():
            _make(place / "data")
            done.touch()
    return place / "data"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(path: Path) -> None:
    from mitosis.store.pg.migrate import migrate  # imports much, and most processes make none

    folder = DataFolder(path, path.with_name("run"))
    folder.lock()
    server = EmbeddedPostgres(folder, {"fsync": "off"})
    with LoopThread() as loop:
        loop.run(server.start())
        migrate(server.url())
        _hash_the_password_once(server)
        loop.run(server.stop())
    folder.release()


def _hash_the_password_once(server: EmbeddedPostgres) -> None:
    """Let a client prove that it knows the password without 4,096 rounds, half of the CPU time of a session.

    Source: PostgreSQL manual, ``scram_iterations``. The rounds protect a password that can be guessed.
    """
    password = conninfo_to_dict(server.url())["password"]
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET scram_iterations = 1")
        words = sql.SQL("ALTER ROLE {} PASSWORD {}")
        connection.execute(words.format(sql.Identifier(ROLE), sql.Literal(password)))
