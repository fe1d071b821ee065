"""A test sees nothing of the one before, though it has its database and its sessions."""

import threading
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from mitosis.store.pg import database as pg
from mitosis.store.pg.database import Database
from tests.support.campaigns import world
from tests.support.databases import DatabasePool
from tests.support.warm_sessions import WarmPool


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pg, "AsyncConnectionPool", WarmPool)


@pytest.fixture
def pool(databases: DatabasePool) -> Iterator[DatabasePool]:
    """One that nobody has used."""
    pool = DatabasePool(databases._postgres, databases._template)
    yield pool
    for warm in pool._warm:
        warm.connection.close()


async def used(url: str) -> tuple[int, object]:
    """Leave what a test may leave; the backend and the number of the first group."""
    async with world(url) as w, w.database.connection() as connection:
        group = await w.group()
        await connection.execute("SET work_mem = '1MB'")
        await connection.execute("SELECT pg_advisory_lock(7)")
        number = await w.value("SELECT id FROM task_groups WHERE uuid = %s", group)
        return connection.info.backend_pid, number


async def found(url: str) -> AsyncIterator[object]:
    async with Database.open(url, pool_size=1) as database, database.connection() as connection:
        yield connection.info.backend_pid
        for asked in (
            "SELECT count(*) AS it FROM task_groups",
            "SELECT count(*) AS it FROM users",
            "SELECT count(*) AS it FROM pg_locks WHERE locktype = 'advisory'",
            "SELECT current_setting('work_mem') <> '1MB' AS it",
        ):
            row = await (await connection.execute(asked)).fetchone()
            assert row is not None
            yield row["it"]


async def test_the_next_test_has_the_sessions_and_nothing_else(pool: DatabasePool) -> None:
    with pool.warm_database() as url:
        backend, first = await used(url)
    with pool.warm_database() as again:
        assert again == url
        _, *left = [it async for it in found(again)]
        assert left == [0, 0, 0, True]
        assert await used(again) == (backend, first)


async def test_a_changed_schema_is_not_handed_on(pool: DatabasePool) -> None:
    with pool.warm_database() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE outbox ADD COLUMN more int")
    with pool.warm_database() as again:
        assert again != url


async def test_a_session_that_is_about_to_end_is_waited_for(pool: DatabasePool) -> None:
    with pool.warm_database() as url:
        ending = threading.Timer(0.1, psycopg.connect(url).close)
        ending.start()
    with pool.warm_database() as again:
        assert again == url
    ending.join()


async def test_a_database_that_somebody_still_uses_is_not_handed_on(pool: DatabasePool) -> None:
    with pool.warm_database() as url:
        other = psycopg.connect(url)
    with pool.warm_database() as again:
        assert again != url
    with pytest.raises(psycopg.OperationalError):
        other.execute("SELECT 1")
    other.close()
