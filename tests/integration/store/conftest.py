"""Files with many short tests, which start no process, use sessions of PostgreSQL one after the other."""

from collections.abc import Iterator

import pytest

from mitosis.store.pg import database as pg
from tests.support.databases import DatabasePool
from tests.support.warm_sessions import WarmPool

WARM = {
    "test_eligibility",
    "test_endings",
    "test_environments",
    "test_fault_endings",
    "test_hello",
    "test_idle_leases",
    "test_interleavings",
    "test_look",
    "test_report",
    "test_scheduling_machine",
    "test_submit",
}


@pytest.fixture
def database(
    request: pytest.FixtureRequest, databases: DatabasePool, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The libpq URL of a migrated database without rows, of this test alone."""
    warm = request.path.stem in WARM
    if warm:
        monkeypatch.setattr(pg, "AsyncConnectionPool", WarmPool)
    with databases.warm_database() if warm else databases.database() as url:
        yield url
