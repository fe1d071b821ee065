"""Databases of tests: made from a template, emptied after a test and used again.

Making one copies 300 files, a quarter of a second of CPU time on a busy machine; emptying one takes a tenth.
Where tests start no process, the sessions of a database are used again too: `warm_sessions.py`.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from mitosis.embedded.postgres import EmbeddedPostgres
from tests.support import warm_sessions

# What a test may have changed besides rows. A database in which this differs is not used again.
_SHAPE = """
SELECT md5(string_agg(line, ' ' ORDER BY line)) FROM (
    SELECT format('%s %s %s', relname, relkind, relpersistence) FROM pg_class
     WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT format('%s.%s %s %s', attrelid::regclass, attname, atttypid, attnotnull)
      FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
     WHERE relnamespace = 'public'::regnamespace AND attnum > 0
    UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint
     WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT proname || md5(prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT format('%s %s', tgname, tgenabled) FROM pg_trigger
    UNION ALL SELECT array_to_string(setconfig, ' ') FROM pg_db_role_setting
    UNION ALL SELECT version_num FROM alembic_version
) AS shape (line)
"""
# The youngest row, and the number of rows, of each catalogue that a change of the shape writes to, for a
# sixth of the CPU time of the shape. TRUNCATE writes to pg_class too.
_CATALOGUES = """
SELECT array[
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_class
      WHERE relnamespace = 'public'::regnamespace),
    (SELECT (count(*), max(pg_attribute.xmin::text::bigint))::text FROM pg_attribute
       JOIN pg_class ON pg_class.oid = attrelid
      WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')),
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_constraint
      WHERE connamespace = 'public'::regnamespace),
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_proc
      WHERE pronamespace = 'public'::regnamespace),
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_trigger),
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_db_role_setting),
    (SELECT string_agg(version_num, ' ') FROM alembic_version)
]
"""
_TABLES = """
SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'
"""
_RESTART = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
  FROM pg_sequences WHERE schemaname = 'public'
"""
_OTHERS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend'
   AND pid <> pg_backend_pid() AND pid <> ALL (%s)
"""
_DISCONNECT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"


LONGEST_GOODBYE = 1.0
"""Seconds that the end of a closed session may take on a busy machine."""

TESTS_UNTIL_VACUUM = 50
"""Deleted rows stay in the files until then."""


@dataclass
class _Warm:
    """A database whose sessions are kept."""

    name: str
    connection: "psycopg.Connection[tuple[object, ...]]"
    """Without triggers and foreign keys."""
    catalogues: object
    """What they said when the shape was last read."""
    used: int = 0


class DatabasePool:
    """The databases of one server that no test uses now."""

    def __init__(self, postgres: EmbeddedPostgres, template: str) -> None:
        self._postgres = postgres
        self._template = template
        with self._connect(template) as connection:
            self._shape = self._shape_of(connection)
            rows = connection.execute(_TABLES).fetchall()
        self._tables = [sql.Identifier(str(name)) for (name,) in rows]
        self._idle: list[str] = []
        self._warm: list[_Warm] = []

    @contextmanager
    def database(self) -> Iterator[str]:
        """The libpq URL of a migrated database without rows, for one test."""
        name = self._idle.pop() if self._idle else self._make()
        try:
            yield self._postgres.url(name)
        finally:
            self._give_back(name)

    @contextmanager
    def warm_database(self) -> Iterator[str]:
        """As :meth:`database`; the next test may use its idle sessions, so no other process may know it."""
        warm = self._warm.pop() if self._warm else self._make_warm()
        try:
            yield self._postgres.url(warm.name)
        finally:
            self._keep_warm(warm)

    def _make_warm(self) -> _Warm:
        name = self._idle.pop() if self._idle else self._make()
        connection = self._connect(name)
        connection.execute("SET session_replication_role = replica")
        return _Warm(name, connection, self._one(connection, _CATALOGUES))

    def close(self) -> None:
        """End the sessions that are kept."""
        for warm in self._warm:
            warm.connection.close()
        warm_sessions.end_all()

    def _keep_warm(self, warm: "_Warm") -> None:
        """Delete the rows: a truncated table makes every session plan its statements again."""
        connection, warm.used = warm.connection, warm.used + 1
        if self._is_left(connection) and self._has_kept_its_shape(warm):
            for table in self._filled(connection):
                connection.execute(sql.SQL("DELETE FROM {}").format(table))
            connection.execute(_RESTART)
            if warm.used % TESTS_UNTIL_VACUUM == 0:
                connection.execute(sql.SQL("VACUUM {}").format(sql.SQL(", ").join(self._tables)))
            self._warm.append(warm)
        else:
            connection.close()
            self._give_back(warm.name)

    def _has_kept_its_shape(self, warm: "_Warm") -> bool:
        """Return whether the shape is that of the template; read it only if a catalogue was written to."""
        if (catalogues := self._one(warm.connection, _CATALOGUES)) == warm.catalogues:
            return True
        warm.catalogues = catalogues
        return self._shape_of(warm.connection) == self._shape

    def _is_left(self, connection: "psycopg.Connection[tuple[object, ...]]") -> bool:
        """Has everybody else left? A session ends a moment after its client has closed it."""
        give_up = time.monotonic() + LONGEST_GOODBYE
        while True:
            (others,) = connection.execute(_OTHERS, [warm_sessions.idle_pids()]).fetchone() or (1,)
            if not others or time.monotonic() > give_up:
                return not others
            time.sleep(0.01)

    def _make(self) -> str:
        name = _new_name()
        # Copying files takes half of the CPU time of the default strategy, which logs every page.
        words = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        self._admin(words.format(sql.Identifier(name), sql.Identifier(self._template)))
        return name

    def _give_back(self, name: str) -> None:
        """Empty the database under a new name: what still reaches for the old one finds none."""
        new = _new_name()
        rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
        with self._connect("postgres") as connection:
            connection.execute(_DISCONNECT, [name])
            connection.execute(rename.format(sql.Identifier(name), sql.Identifier(new)))
        with self._connect(new) as connection:
            same = self._shape_of(connection) == self._shape
            if same:
                self._empty(connection)
        if same:
            self._idle.append(new)
        else:
            self._admin(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(new)))

    def _filled(self, connection: "psycopg.Connection[tuple[object, ...]]") -> list[sql.SQL]:
        """The tables with rows, each quoted."""
        filled = sql.SQL(" UNION ALL ").join(
            sql.SQL("(SELECT {} FROM {} LIMIT 1)").format(sql.Literal(table.as_string()), table)
            for table in self._tables
        )
        return [sql.SQL(str(name)) for (name,) in connection.execute(filled).fetchall()]

    def _empty(self, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        if names := self._filled(connection):
            connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(names)))
        connection.execute(_RESTART)

    def _admin(self, statement: sql.Composed) -> None:
        with self._connect("postgres") as connection:
            connection.execute(statement)

    def _connect(self, name: str) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(self._postgres.url(name), autocommit=True)

    @classmethod
    def _shape_of(cls, connection: "psycopg.Connection[tuple[object, ...]]") -> object:
        return cls._one(connection, _SHAPE)

    @staticmethod
    def _one(
        connection: "psycopg.Connection[tuple[object, ...]]", question: LiteralString
    ) -> object:
        row = connection.execute(question).fetchone()
        assert row is not None
        return row[0]


def _new_name() -> str:
    return f"test_{uuid.uuid4().hex[:12]}"
