"""Migrations of tables in use: tasks are submitted, claimed and reported while an index is built."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg import sql

from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.contracts.wire import ReportStatus
from mitosis.store.pg import migrate as migrations
from mitosis.store.pg.concurrently import CREATED
from mitosis.store.pg.migrate import head_revision, migrate
from tests.support.campaigns import World, world
from tests.support.prepared import base_environment, python
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.new_sessions

SECONDS = 20
MIGRATE = "import sys; from mitosis.store.pg.migrate import migrate; migrate(*sys.argv[1:])"
WAITS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'mitosis migrate' AND wait_event_type = 'Lock'"
)
TRIES = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'mitosis migrate' AND (query = 'COMMIT' OR query LIKE '%advisory%')"
)
INDEXES = (
    "SELECT indexrelid::regclass::text, indisvalid FROM pg_index"
    " WHERE indexrelid::regclass::text = ANY (%s)"
)


def revisions() -> dict[str, ModuleType]:
    """The migrations that run statement by statement."""
    scripts = ScriptDirectory.from_config(migrations._config()).walk_revisions()
    return {s.revision: s.module for s in scripts if hasattr(s.module, "execute_concurrently")}


def indexes_of(module: ModuleType) -> dict[str, str]:
    """The indexes that a migration creates, with their tables."""
    found = (re.match(CREATED.pattern + r"(\w+)", text) for text in module.STATEMENTS)
    return {match[1]: match[2] for match in found if match}


class Before:
    """A database as before a migration, whose tables are in use."""

    def __init__(self, admin: psycopg.Connection, url: str, revision: str) -> None:
        self.admin = admin
        self.url, self.revision, self.module = url, revision, revisions()[revision]
        self.indexes = indexes_of(self.module)
        for index in self.indexes:
            self.admin.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(index)))

    def _stamp(self, revision: str) -> None:
        self.admin.execute("UPDATE alembic_version SET version_num = %s", [revision])

    def migrate(self) -> None:
        """Migrate up to the revision, as when the later ones had run already."""
        self._stamp(self.module.down_revision)
        migrate(self.url, self.revision)
        self._stamp(head_revision())

    def waiting(self) -> int | None:
        """The process of PostgreSQL in which the migration waits now."""
        row = self.admin.execute(WAITS).fetchone()
        return None if row is None else int(row[0])

    def another_tries(self) -> bool:
        """Whether another process has tried to get the lock."""
        (count,) = self.admin.execute(TRIES).fetchone() or (0,)
        return bool(count)

    def is_valid(self) -> dict[str, bool]:
        """What there is of the indexes, and whether each is complete."""
        return dict(self.admin.execute(INDEXES, [list(self.indexes)]).fetchall())

    @contextmanager
    def a_long_transaction(self) -> Iterator[None]:
        """Have written to each table, and not committed, so that each build has something to wait for."""
        with psycopg.connect(self.url) as connection:
            for table in set(self.indexes.values()):
                connection.execute(
                    sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(sql.Identifier(table))
                )
            yield


@pytest.fixture(params=sorted(revisions()))
async def before(request: Any, database: str) -> AsyncIterator[Before]:
    with psycopg.connect(database, autocommit=True) as admin:  # closed also if the setup fails
        yield Before(admin, database, request.param)


async def work(w: World) -> None:
    """Create a task group, submit a task, claim it and report it."""
    async with asyncio.timeout(SECONDS):
        group = await w.group("busy")
        await w.submit(group)
        host = await w.leased_host(group)
        answer = await host.finish((await host.claim()).tasks)
    assert answer.statuses == [ReportStatus.COMMITTED]


async def test_work_goes_on_while_indexes_are_built(before: Before) -> None:
    async with world(before.url) as w:
        with before.a_long_transaction():
            migrating = asyncio.create_task(asyncio.to_thread(before.migrate))
            await wait_until_async(lambda: before.waiting() is not None)
            await work(w)
            assert not migrating.done()
        await migrating
    assert before.is_valid() == dict.fromkeys(before.indexes, True)


async def test_an_index_that_an_interrupted_build_has_left_is_built_again(before: Before) -> None:
    with before.a_long_transaction():
        migrating = asyncio.create_task(asyncio.to_thread(before.migrate))
        await wait_until_async(lambda: before.waiting() is not None)
        before.admin.execute("SELECT pg_terminate_backend(%s)", [before.waiting()])
        with pytest.raises(DatabaseUnavailable):
            await migrating
    assert False in before.is_valid().values()
    before.migrate()
    assert before.is_valid() == dict.fromkeys(before.indexes, True)
    before.migrate()


async def test_another_process_that_migrates_does_not_end_the_build(before: Before) -> None:
    """A statement that waits for the lock of migrations would block the build for ever."""
    with before.a_long_transaction():
        migrating = asyncio.create_task(asyncio.to_thread(before.migrate))
        await wait_until_async(lambda: before.waiting() is not None)
        env = base_environment()
        beside = await asyncio.create_subprocess_exec(
            *python(env), "-c", MIGRATE, before.url, before.revision, env=env
        )
        await wait_until_async(before.another_tries)
    await migrating
    assert await asyncio.wait_for(beside.wait(), SECONDS) == 0
    assert before.is_valid() == dict.fromkeys(before.indexes, True)
