"""Counters and indexes, so that lists, views and cancellation of one task group cost nothing for the tasks of others."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

CANCEL_COUNTERS = """
ALTER TABLE group_live
    ADD COLUMN cancelled_before bigint,            -- tasks that were cancelled before the group was; null: not known
    ADD COLUMN cancelled_running bigint NOT NULL DEFAULT 0;  -- since then, reported by the hosts that ran them
"""

STATEMENTS: tuple[str, ...] = (
    CANCEL_COUNTERS,
    "CREATE INDEX open_task_by_time ON open_task (group_id, not_before, id) WHERE state = 4",
    "DROP INDEX open_task_delayed",
    "CREATE INDEX hook_runs_latest ON hook_runs (group_id, started_at)",
    # Their order is that of no other index, so that no other can be taken for as good.
    "CREATE INDEX task_groups_newest ON task_groups (user_group_id, (-id))",
    "CREATE INDEX group_live_newest ON group_live (state, (-group_id))",
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
