"""Runs statements that SQLAlchemy Core builds from optional filters, on our own pool.

A statement is composed once per combination of filters, with ``bindparam`` for values that differ from
call to call. Statements that are always the same are written SQL and never pass through here.
"""

from typing import Any, LiteralString, NamedTuple, TypeVar

from psycopg import AsyncConnection
from sqlalchemy import ClauseElement
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from mitosis.store.pg.rows import fetch_all

T = TypeVar("T")
_DIALECT = PGDialect_psycopg()  # type: ignore[no-untyped-call]


class Composed(NamedTuple):
    """A statement with psycopg's placeholders, and the parameters that are part of it."""

    sql: LiteralString
    parameters: dict[str, Any]


def compose(statement: ClauseElement) -> Composed:
    """Return the SQL of a statement; every value is a parameter, none is part of the text."""
    compiled = statement.compile(dialect=_DIALECT)
    # Names of tables and columns, and placeholders: no input of a request.
    return Composed(str(compiled), dict(compiled.params))


async def fetch_composed(
    connection: AsyncConnection[Any], kind: type[T], statement: Composed, **parameters: object
) -> list[T]:
    """Execute a statement with the values of its ``bindparam``; return all its rows."""
    return await fetch_all(connection, kind, statement.sql, {**statement.parameters, **parameters})
