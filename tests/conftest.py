"""Fixtures that every test may use: real servers, started once per session and only when asked."""

import gc
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.postgres import DATABASE, EmbeddedPostgres
from tests.support.databases import DatabasePool
from tests.support.examples import examples
from tests.support.folders import short_folder
from tests.support.servers import LoopThread

pytest_plugins = [
    "tests.support.clusters",
    "tests.support.default_signals",
    "tests.support.long_files_first",
    "tests.support.open_folders",
    "tests.support.prepared",
    "tests.support.shared_temporal",
    "tests.support.spec_report",
]

# How long an example takes says something about the machine only; the timeout of the test bounds it.
hypothesis.settings.register_profile(
    "suite",
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")

LONGEST_TEMPORARY_FOLDER = 40


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the collector what collection loads: each full collection would walk all of it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def runtime_dir() -> Iterator[Path]:
    """Short folders for sockets go here, also those of programs that a test kills."""
    with (
        tempfile.TemporaryDirectory(prefix="mt-run-") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        Path(name).chmod(0o711)
        patch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short name: sockets are made in it, and sockaddr_un holds 108 bytes.

    pytest's own is named after the user, the run, the process and the test.
    """
    short = "/tmp" if len(tempfile.gettempdir()) > LONGEST_TEMPORARY_FOLDER else None
    with short_folder(short) as folder:
        yield folder


@pytest.fixture
def no_stack_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user with no settings, whose data folder ``tmp_path / "data"`` does not exist.

    Whatever reaches for the API ends as UNAVAILABLE: so a test can tell that nothing was sent.
    """
    for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("MITOSIS_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture(scope="session")
def server_loop() -> Iterator[LoopThread]:
    with LoopThread() as loop:
        yield loop


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFolder]:
    folder = DataFolder(tmp_path_factory.mktemp("servers"))
    folder.lock()
    yield folder
    folder.release()


@pytest.fixture(scope="session")
def postgres(server_loop: LoopThread, server_folder: DataFolder) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server. It survives the kill of a process, not a power cut: fsync is off."""
    from tests.support import clusters  # a plugin: pytest imports it first

    options = {"fsync": "off", "full_page_writes": "off", "max_connections": "200"}
    options["autovacuum"] = "off"  # it would look into hundreds of short-lived databases
    clusters.begin_with_cluster(server_folder.path)
    server = EmbeddedPostgres(server_folder, options=options)
    server_loop.run(server.start())
    yield server
    server_loop.run(server.stop())


@pytest.fixture(scope="session")
def template_database(postgres: EmbeddedPostgres) -> str:
    """The name of a database with the newest schema that nobody is connected to."""
    return DATABASE


@pytest.fixture(scope="session")
def databases(postgres: EmbeddedPostgres, template_database: str) -> Iterator[DatabasePool]:
    pool = DatabasePool(postgres, template_database)
    yield pool
    pool.close()


@pytest.fixture
def database(databases: DatabasePool) -> Iterator[str]:
    """The libpq URL of a migrated database without rows, of this test alone."""
    with databases.database() as url:
        yield url


@pytest.fixture(scope="module")
def module_database(databases: DatabasePool) -> Iterator[str]:
    """As :func:`database`, one for all tests of a module."""
    with databases.database() as url:
        yield url


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Where a stack of this test may keep its data."""
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    """A program that is run inside a test sets its logging up for good; other tests read the log."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
