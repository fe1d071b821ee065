"""Indexes of runs, built while runs are started and carried on."""

from mitosis.store.pg.concurrently import execute_concurrently

revision = "0011c"
down_revision = "0011b"
branch_labels = None
depends_on = None

STATEMENTS: tuple[str, ...] = (
    "CREATE INDEX CONCURRENTLY runs_of_creator ON runs (creator_id, id)",
    "DROP INDEX CONCURRENTLY IF EXISTS runs_reruns",
)
"""In this order, one statement each."""


def upgrade() -> None:
    execute_concurrently(STATEMENTS)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
