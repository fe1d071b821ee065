"""Rows in every table, as after long use: one large task group beside many others.

Foreign keys and triggers are off while rows are written: what the planner reads is what counts.
"""

from pathlib import Path

import psycopg

OF_TASKS = 0.01
"""A table is large if it has more than so many rows for each task."""
BIG = 1
"""The number of the task group with half of all tasks."""
STATEMENTS = Path(__file__).with_suffix(".sql").read_text().split(";\n")


def fill(url: str, tasks: int) -> None:
    """Write the rows for so many tasks into an empty database, and let PostgreSQL count them."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET statement_timeout = 0")
        for statement in STATEMENTS:
            connection.execute(statement.replace(":n", str(tasks)).encode())
        connection.execute("VACUUM ANALYZE")


def large_tables(url: str, tasks: int) -> frozenset[str]:
    """Return the names of the large tables and indexes: more rows than 0.01 for each task."""
    with psycopg.connect(url, autocommit=True) as connection:
        counted = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'i') AND reltuples > %s"
        return frozenset(row[0] for row in connection.execute(counted, [OF_TASKS * tasks]))
