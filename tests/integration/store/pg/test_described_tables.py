"""The tables that SQLAlchemy describes are the tables that the migrations create."""

import re

import pytest
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from sqlalchemy import create_mock_engine
from sqlalchemy.schema import ExecutableDDLElement

from mitosis.store.pg.tables import METADATA

pytestmark = pytest.mark.new_sessions

SCHEMA = "described"
COLUMNS = """
SELECT c.relname AS "table", c.relpersistence::text, a.attname,
       format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull, a.attidentity::text,
       pg_get_expr(d.adbin, d.adrelid) AS "default"
  FROM pg_attribute AS a
  JOIN pg_class AS c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
"""
CONSTRAINTS = """
SELECT conrelid::regclass::text AS "table", contype::text,
       replace(pg_get_constraintdef(oid), ' NOT VALID', '') AS rule  -- validated in a later migration
  FROM pg_constraint WHERE connamespace = %s::regnamespace AND conrelid <> 0
"""
INDEXES = """
SELECT indrelid::regclass::text AS "table", pg_get_indexdef(indexrelid) AS index
  FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid
 WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r'
"""


async def catalogue(connection: AsyncConnection[DictRow], schema: str) -> set[tuple[str, ...]]:
    """Return columns, constraints and indexes of a schema, each as PostgreSQL shows it."""
    found = set()
    for statement in (COLUMNS, CONSTRAINTS, INDEXES):
        cursor = await connection.execute(statement, [schema])
        for row in await cursor.fetchall():
            plain = tuple(re.sub(rf"\b({SCHEMA}|public)\.", "", str(v)) for v in row.values())
            if "alembic_version" not in plain:
                found.add(plain)
    return found


def ddl() -> list[str]:
    """Return the statements that create what the description says."""
    statements: list[str] = []

    def record(item: ExecutableDDLElement, *_: object, **__: object) -> None:
        statements.append(str(item.compile(dialect=engine.dialect)))

    engine = create_mock_engine("postgresql+psycopg://", record)
    METADATA.create_all(engine, checkfirst=False)
    return statements


async def test_the_described_tables_are_the_migrated_ones(database: str) -> None:
    connection = await AsyncConnection.connect(database, row_factory=dict_row, autocommit=True)
    async with connection:
        await connection.execute(f"CREATE SCHEMA {SCHEMA}")
        migrated = await catalogue(connection, "public")
        await connection.execute(f"SET search_path = {SCHEMA}, public")
        for statement in ddl():
            await connection.execute(statement.encode())
        described = await catalogue(connection, SCHEMA)
        assert described - migrated == set(), "described and not migrated"
        assert migrated - described == set(), "migrated and not described"
