"""Indexes of 0015: what worker services support no longer, in the order of its withdrawal; those with valid tokens,
beside many that are gone.
"""

from mitosis.store.pg.concurrently import execute_concurrently

revision = "0015b"
down_revision = "0015"
branch_labels = None
depends_on = None

STATEMENTS: tuple[str, ...] = (
    "CREATE INDEX CONCURRENTLY worker_named_tasks_withdrawn ON worker_named_tasks (withdrawn_at)"
    " WHERE withdrawn_at IS NOT NULL",
    "CREATE INDEX CONCURRENTLY worker_services_tokens ON worker_services (tokens_expire_at)",
)
"""In this order, one statement each."""


def upgrade() -> None:
    execute_concurrently(STATEMENTS)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
