"""Indexes of 0009, built while tasks are submitted, claimed and reported."""

from mitosis.store.pg.concurrently import execute_concurrently

revision = "0009b"
down_revision = "0009"
branch_labels = None
depends_on = None

STATEMENTS: tuple[str, ...] = (
    "CREATE INDEX CONCURRENTLY open_task_by_time ON open_task (group_id, not_before, id) WHERE state = 4",
    "DROP INDEX CONCURRENTLY IF EXISTS open_task_delayed",
    "CREATE INDEX CONCURRENTLY hook_runs_latest ON hook_runs (group_id, started_at)",
    # Their order is that of no other index, so that no other can be taken for as good.
    "CREATE INDEX CONCURRENTLY task_groups_newest ON task_groups (user_group_id, (-id))",
    "CREATE INDEX CONCURRENTLY group_live_newest ON group_live (state, (-group_id))",
)
"""In this order, one statement each."""


def upgrade() -> None:
    execute_concurrently(STATEMENTS)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
