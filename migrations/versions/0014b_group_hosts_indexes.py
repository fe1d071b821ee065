"""Indexes of 0014: deleted hosts in the order of their deletion, the others for what reads all of them, and what
names a host, which its deletion reads.
"""

from mitosis.store.pg.concurrently import execute_concurrently

revision = "0014b"
down_revision = "0014"
branch_labels = None
depends_on = None

STATEMENTS: tuple[str, ...] = (
    "CREATE INDEX CONCURRENTLY managers_deleted ON managers (deleted_at) WHERE deleted_at IS NOT NULL",
    "CREATE INDEX CONCURRENTLY managers_kept ON managers (id) WHERE deleted_at IS NULL",
    "CREATE INDEX CONCURRENTLY leases_by_manager ON leases (manager_id) WHERE manager_id IS NOT NULL",
    "CREATE INDEX CONCURRENTLY hook_runs_by_manager ON hook_runs (manager_id)",
)
"""In this order, one statement each."""


def upgrade() -> None:
    execute_concurrently(STATEMENTS)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
