"""When the API has last been able to hear hosts (protocol P4): one row, written every few seconds."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PULSE = """
CREATE TABLE api_pulse (
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    beat_at         timestamptz NOT NULL       -- of whichever API process was the last
) WITH (fillfactor = 50);
"""


def upgrade() -> None:
    op.execute(PULSE)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
