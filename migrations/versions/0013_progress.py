"""Progress and checkpoints of attempts in worker services; nullable, so the version before writes on."""

from alembic import op

revision = "0013"
down_revision = "0012b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE service_claims ADD COLUMN fraction real, ADD COLUMN stage text, ADD COLUMN message text,"
        " ADD COLUMN checkpoint json, ADD COLUMN progress_at timestamptz"
    )


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
