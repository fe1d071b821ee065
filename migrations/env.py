"""Alembic environment: one advisory lock around the upgrade, so that concurrent starts are safe.

A database whose revision this code does not know belongs to a newer version: it is left alone, since
old processes must be able to start beside new ones in the middle of an upgrade.
"""

import logging

from alembic import context
from alembic.util import CommandError
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

log = logging.getLogger("mitosis.store.pg.migrate")

LOCK = 0x6D69746F736973  # "mitosis"


def run() -> None:
    url = context.config.attributes["url"]
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": LOCK})
        connection.execute(text("SET lock_timeout = '10s'"))
        connection.commit()
        context.configure(connection=connection, transaction_per_migration=True)
        if _is_known(context.get_context().get_current_heads()):
            with context.begin_transaction():
                context.run_migrations()
        else:
            log.warning("database.newer_than_code")
        # The session lock goes with the connection.
    engine.dispose()


def _is_known(revisions: tuple[str, ...]) -> bool:
    try:
        context.script.get_revisions(revisions)
    except CommandError:
        return False
    return True


run()
