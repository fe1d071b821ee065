"""Alembic environment: one advisory lock around the upgrade, so that concurrent starts are safe."""

from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

LOCK = 0x6D69746F736973  # "mitosis"


def run() -> None:
    url = context.config.attributes["url"]
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": LOCK})
        connection.execute(text("SET lock_timeout = '10s'"))
        connection.commit()
        context.configure(connection=connection, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()
        # The session lock goes with the connection.
    engine.dispose()


run()
