"""Validate the constraint of 0007: by itself, since it reads all tasks while they are claimed and reported."""

from alembic import op

revision = "0010"
down_revision = "0009b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE open_task VALIDATE CONSTRAINT open_task_waits_for_check")


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
