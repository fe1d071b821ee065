"""Indexes of 0012, built while runs start: one run of a schedule for each time, the last runs of a schedule and
those that have not ended, and the last runs of a user without those of schedules, which may be a million.
``runs_of_creator`` stays: processes of the version before read it.
"""

from mitosis.store.pg.concurrently import execute_concurrently

revision = "0012b"
down_revision = "0012"
branch_labels = None
depends_on = None

STATEMENTS: tuple[str, ...] = (
    "CREATE UNIQUE INDEX CONCURRENTLY runs_of_schedule ON runs (schedule_id, nominal_time) WHERE schedule_id IS NOT NULL",
    "CREATE INDEX CONCURRENTLY runs_unfinished_of_schedule ON runs (schedule_id)"
    " WHERE schedule_id IS NOT NULL AND ended_at IS NULL",
    "CREATE INDEX CONCURRENTLY runs_by_schedule ON runs (schedule_id, id) WHERE schedule_id IS NOT NULL",
    "CREATE INDEX CONCURRENTLY runs_by_hand ON runs (creator_id, id) WHERE schedule_id IS NULL",
)
"""In this order, one statement each."""


def upgrade() -> None:
    execute_concurrently(STATEMENTS)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
