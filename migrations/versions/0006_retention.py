"""What is kept for how long: times of the next deletions, sums of deleted groups."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

RETENTION = """
-- One row for each kind of row that is not kept for ever.
CREATE TABLE retention (
    kind            text PRIMARY KEY,
    next_at         timestamptz NOT NULL DEFAULT now(),
    seen_to         timestamptz,                   -- how far the present pass has come; null: none is in progress
    pass_deleted    bigint NOT NULL DEFAULT 0,     -- by the present pass, or by the last one
    deleted         bigint NOT NULL DEFAULT 0,     -- by all
    kept_seconds    double precision,              -- as of the last pass; null: until deleted by a user
    finished_at     timestamptz                    -- of the last pass
);
"""

DELETED_GROUP_DAYS = """
-- Kept for ever: sums over the task groups that were deleted, by the day on which they had settled.
CREATE TABLE deleted_group_days (
    day             date NOT NULL,
    user_group_id   bigint NOT NULL,
    kind            text NOT NULL,
    result          text NOT NULL,
    groups          bigint NOT NULL,
    tasks           bigint NOT NULL,
    succeeded       bigint NOT NULL,
    failed          bigint NOT NULL,
    cancelled       bigint NOT NULL,
    group_seconds   double precision NOT NULL,     -- from creation until settlement
    run_seconds     double precision NOT NULL,     -- of their tasks
    PRIMARY KEY (day, user_group_id, kind, result)
);
"""

STATEMENTS: tuple[str, ...] = (
    RETENTION,
    DELETED_GROUP_DAYS,
    # Its failures, submissions and other bookkeeping have been deleted.
    "ALTER TABLE group_live ADD COLUMN bookkeeping_deleted boolean NOT NULL DEFAULT false",
    # For how long settled task groups of a user group are kept; null: as the deployment says; Infinity: for ever.
    "ALTER TABLE user_groups ADD COLUMN keep_seconds double precision CHECK (keep_seconds > 0)",
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
