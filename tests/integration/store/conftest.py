"""Tests of the store start no process: they use sessions one after the other."""

from collections.abc import Iterator

import pytest

from mitosis.store.pg import database as pg
from tests.support.databases import DatabasePool
from tests.support.warm_sessions import WarmPool


@pytest.fixture
def database(databases: DatabasePool, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The libpq URL of a migrated database without rows, of this test alone."""
    monkeypatch.setattr(pg, "AsyncConnectionPool", WarmPool)
    with databases.warm_database() as url:
        yield url
