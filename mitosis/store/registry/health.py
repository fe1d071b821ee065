"""The health of registrations as expressions of SQL: one definition for every statement (C-20)."""

from typing import LiteralString

from mitosis.contracts.worker_health import HEALTHY_SECONDS
from mitosis.store.pg.statements import load

SQL = load("registry/health.sql")
HEALTH: LiteralString = SQL["health"].replace("$healthy_seconds$", f"{HEALTHY_SECONDS:d}")
USABLE: LiteralString = SQL["usable"].replace("$health$", HEALTH)


def with_health(statement: LiteralString) -> LiteralString:
    """Return a statement with the expressions in the place of their names."""
    return statement.replace("$usable$", USABLE).replace("$health$", HEALTH)
