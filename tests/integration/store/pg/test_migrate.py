"""Migrations: one head, safe when several processes start at once, and never in the way of old code."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
import pytest
from alembic.script import ScriptDirectory

from mitosis.contracts.errors import ConfigurationError, DatabaseUnavailable
from mitosis.contracts.lifecycle import ENVIRONMENT, LEASE, TASK_GROUP, TaskGroupResult
from mitosis.store.pg import migrate as migrations
from mitosis.store.pg.migrate import head_revision, migrate
from mitosis.store.pg.revision import REVISION
from mitosis.store.store import Store, StoreOptions
from tests.support.prepared import base_environment, python
from tests.support.waiting import wait_until

pytestmark = pytest.mark.new_sessions

LOCK = 0x6D69746F736973
"""The advisory lock of migrations/env.py."""
MIGRATE = "import sys; from mitosis.store.pg.migrate import migrate; migrate(sys.stdin.read())"


@pytest.fixture
def empty_database(postgres: Any) -> Iterator[str]:
    """The URL of a database without any table of ours."""
    name = "empty_for_migrations"
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield postgres.url(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def revisions(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT version_num FROM alembic_version")]


def test_there_is_one_head_and_a_straight_way_to_it() -> None:
    scripts = ScriptDirectory.from_config(migrations._config())
    assert scripts.get_heads() == [head_revision()]
    assert len(scripts.get_bases()) == 1
    for script in scripts.walk_revisions():
        assert script.down_revision is None or isinstance(script.down_revision, str)


def waiting(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'mitosis migrate'"
        ).fetchone()
    return int(row[0]) if row else 0


def test_four_processes_migrate_at_once(empty_database: str) -> None:
    """All are brought to the same point, let go together, and only one has anything to do."""
    gate = psycopg.connect(empty_database)
    gate.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    env = base_environment()
    processes = [
        subprocess.Popen(
            [*python(env), "-c", MIGRATE],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(empty_database)
        process.stdin.close()
    wait_until(lambda: waiting(empty_database) == 4, timeout=60)
    gate.close()
    for process in processes:
        assert process.stderr is not None
        with process.stderr as errors:
            told = errors.read()
        assert process.wait(60) == 0, told
    assert revisions(empty_database) == [head_revision()]


def test_again_is_nothing_and_leaves_no_lock(database: str) -> None:
    migrate(database)
    migrate(database)
    assert revisions(database) == [head_revision()]
    with psycopg.connect(database) as connection:
        held = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        assert held.fetchone() == (0,)


def test_a_database_newer_than_the_code_is_left_alone(database: str) -> None:
    """Old code beside new code, in the middle of an upgrade: it neither fails nor goes back."""
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'zzzz'")
    migrate(database)
    assert revisions(database) == ["zzzz"]


async def open_and_close(url: str) -> None:
    async with Store.open(StoreOptions(database_url=url, listens=False)):
        pass


async def test_a_process_needs_the_schema_of_its_version(
    database: str, empty_database: str
) -> None:
    """Processes of the version before go on; one of this version would fail at its first statement."""
    assert head_revision() == REVISION
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0003'")
        with pytest.raises(ConfigurationError, match=r"revision 0003.*`mitosis migrate`"):
            await open_and_close(database)
        connection.execute("UPDATE alembic_version SET version_num = 'zzzz'")
        await open_and_close(database)
    with pytest.raises(ConfigurationError, match="no schema of Mitosis"):
        await open_and_close(empty_database)


def test_a_wrong_or_unreachable_database_url_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        migrate("mysql://somewhere/db")
    with pytest.raises(DatabaseUnavailable):
        migrate("postgresql://u@127.0.0.1:9/nothing")


def test_the_schema_knows_the_states_of_the_lifecycles(database: str) -> None:
    """The CHECK of each state column lists exactly the states of its table."""
    expected: dict[str, Iterable[str]] = {
        "group_live.state": set(TASK_GROUP.states),
        "group_live.result": set(TaskGroupResult),
        "leases.state": set(LEASE.states),
        "environments.state": set(ENVIRONMENT.states),
    }
    with psycopg.connect(database) as connection:
        for column, states in expected.items():
            table, name = column.split(".")
            rows = connection.execute(
                "SELECT pg_get_constraintdef(c.oid) FROM pg_constraint AS c"
                " WHERE c.conrelid = %s::regclass AND c.contype = 'c'",
                [table],
            ).fetchall()
            lists = [row[0] for row in rows if row[0].startswith(f"CHECK (({name} = ANY (ARRAY[")]
            (said,) = [set(re.findall(r"'(\w+)'::text", text)) for text in lists]
            assert said == {str(state) for state in states}, column
