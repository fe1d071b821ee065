"""Reruns that repeat only tasks of an array that have not succeeded."""

from alembic import op

revision = "0011b"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # reuses: the step of an earlier run whose succeeded tasks are its own; taken: so many tasks are of that step.
    op.execute(
        "ALTER TABLE run_steps"
        " ADD COLUMN reuses bigint NOT NULL DEFAULT 0,"
        " ADD COLUMN taken integer NOT NULL DEFAULT 0"
    )


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
