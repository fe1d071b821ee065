"""Alembic environment: one advisory lock around the upgrade, so that concurrent starts are safe.

A database whose revision this code does not know belongs to a newer version: it is left alone, since
old processes must be able to start beside new ones in the middle of an upgrade.
"""

import logging
import time

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from mitosis.store.pg.concurrently import LOCK_TIMEOUT

log = logging.getLogger("mitosis.store.pg.migrate")

LOCK = 0x6D69746F736973  # "mitosis"
PAUSE = 0.2
"""Seconds between two attempts to get the lock."""


def run() -> None:
    url = context.config.attributes["url"]
    engine = create_engine(
        url, poolclass=NullPool, connect_args={"application_name": "mitosis migrate"}
    )
    with engine.connect() as connection:
        while not _is_locked(connection):
            time.sleep(PAUSE)
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
        connection.commit()
        context.configure(connection=connection, transaction_per_migration=True)
        if _is_known(context.get_context().get_current_heads()):
            with context.begin_transaction():
                context.run_migrations()
        else:
            log.warning("database.newer_than_code")
        # The session lock goes with the connection.
    engine.dispose()


def _is_locked(connection: Connection) -> bool:
    """Try to get the lock of this session.

    Waiting for it in PostgreSQL would be a statement that runs: the concurrent build of an index by the holder
    of the lock waits for the end of each such statement.
    """
    is_locked = connection.execute(
        text("SELECT pg_try_advisory_lock(:key)"), {"key": LOCK}
    ).scalar_one()
    connection.commit()
    return bool(is_locked)


def _is_known(revisions: tuple[str, ...]) -> bool:
    try:
        context.script.get_revisions(revisions)
    except CommandError:
        return False
    return True


run()
