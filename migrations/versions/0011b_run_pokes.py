"""Pokes of runs in the outbox: apart from the change of open_task, so that no claim waits for the outbox."""

from alembic import op

revision = "0011b"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE outbox"
        " DROP CONSTRAINT outbox_kind_check,"
        " ADD CONSTRAINT outbox_kind_check CHECK (kind IN ('task_group', 'manager', 'scheduler', 'run'))"
    )


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
