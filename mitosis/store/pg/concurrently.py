"""Migrate tables that are in use without locking out claims, reports and submits: one statement at a time.

``CREATE INDEX`` in a transaction locks its table against writes until the transaction ends. ``CONCURRENTLY``
does not, but it cannot run in a transaction, and an interrupted build leaves an index that is not valid.
Source: PostgreSQL manual, CREATE INDEX, "Building Indexes Concurrently".
"""

import re
from collections.abc import Iterable

from alembic import op
from sqlalchemy import Connection, text

LOCK_TIMEOUT = "10s"
"""How long a migration waits for a lock that others then wait behind."""

CREATED = re.compile(r"CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+) ON ")
IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"


def execute_concurrently(statements: Iterable[str]) -> None:
    """Execute each statement in a transaction of its own, in this order.

    A migration that calls this does nothing else, since an interrupted one starts over.
    Valid indexes are kept, others are dropped and built again. Other statements must be repeatable.
    """
    with op.get_context().autocommit_block():
        # The locks of these statements let others pass, so that a long transaction only delays the migration.
        op.execute("SET lock_timeout = 0")
        op.execute("SET statement_timeout = 0")  # of the role: a large index takes its time
        for statement in statements:
            if _is_left_to_do(statement):
                op.execute(statement)
        op.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        op.execute("RESET statement_timeout")


def _is_left_to_do(statement: str) -> bool:
    """Drop the index that an interrupted build has left, if the statement creates one."""
    created = CREATED.match(statement)
    if created is None or op.get_context().as_sql:
        return True
    is_valid = _is_valid(op.get_bind(), created[1])
    if is_valid is False:
        op.execute(f"DROP INDEX CONCURRENTLY {created[1]}")
    return not is_valid


def _is_valid(connection: Connection, index: str) -> bool | None:
    """None: there is no such index."""
    found = connection.execute(text(IS_VALID), {"name": index}).scalar_one_or_none()
    return None if found is None else bool(found)
