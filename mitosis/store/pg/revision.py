"""The revision of the schema that this version needs. A later one is as good: migrations only add."""

import psycopg

from mitosis.contracts.errors import ConfigurationError
from mitosis.store.pg.database import Database

REVISION = "0015b"
"""The last migration of this version; they are numbered in their order."""


async def require_revision(database: Database) -> None:
    """Check that the database has been migrated for this version.

    Raises:
        ConfigurationError: it has an older schema, or none.
        DatabaseUnavailable: PostgreSQL does not answer.
    """
    async with database.connection() as connection:
        try:
            cursor = await connection.execute("SELECT version_num FROM alembic_version")
        except psycopg.errors.UndefinedTable:
            found = None
        else:
            row = await cursor.fetchone()
            found = None if row is None else str(row["version_num"])
    if found is None or found < REVISION:
        has = "has no schema of Mitosis" if found is None else f"is at revision {found}"
        raise ConfigurationError(
            f"the database {has} and this version needs {REVISION}: run `mitosis migrate` with this"
            " version first; processes of the version before go on beside it",
            field="database.url",
        )
