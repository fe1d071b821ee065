"""Counters, so that lists, views and cancellation of one task group cost nothing for the tasks of others."""

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

STATEMENTS: tuple[str, ...] = (CANCEL_COUNTERS,)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
