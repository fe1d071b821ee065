"""Verbs on running things: single tasks are cancelled, hosts drained, task groups deleted by force."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TASK_STOPS = """
CREATE TABLE task_stops (
    epoch           bigint NOT NULL,               -- of the lease under which the attempt was claimed
    task_id         bigint NOT NULL,
    attempt         integer NOT NULL,
    grace_seconds   double precision NOT NULL,
    reason          text NOT NULL,
    PRIMARY KEY (epoch, task_id, attempt)
);
"""

STATEMENTS: tuple[str, ...] = (TASK_STOPS,)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
