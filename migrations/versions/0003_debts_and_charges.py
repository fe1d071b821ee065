"""What hosts owe, what is charged to whom, and what is tried again when (protocol P5, P7, P8)."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

HOST_FAILURES = """
CREATE TABLE host_failures (
    group_id        bigint NOT NULL REFERENCES task_groups (id) ON DELETE CASCADE,
    manager_id      bigint NOT NULL REFERENCES managers (id) ON DELETE CASCADE,
    kind            text NOT NULL CHECK (kind IN ('setup_failed', 'unreachable', 'workers_not_started',
                                                  'no_progress', 'tasks_failed', 'quarantined')),
    failures        integer NOT NULL DEFAULT 1,    -- in a row
    reason          text NOT NULL,
    -- The failure counts while both are still those of the host and of the group.
    incarnation     bigint NOT NULL,
    hook            text NOT NULL,
    next_at         timestamptz,                   -- NULL: the passing of time does not end it
    tasks           bigint[] NOT NULL DEFAULT '{}',
    failed_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_id, manager_id, kind)
);
"""

AVOIDED_HOST = """
ALTER TABLE open_task
    ADD COLUMN avoid bigint,                       -- the manager whose failure it repeats: others go first
    DROP CONSTRAINT open_task_state_check,
    ADD CONSTRAINT open_task_state_check CHECK (state IN (0, 1, 4, 5)) NOT VALID;
"""

CHARGES = """
ALTER TABLE open_task
    ADD COLUMN announce boolean NOT NULL DEFAULT false,   -- its next start waits until it is recorded
    ADD COLUMN terminations smallint NOT NULL DEFAULT 0;  -- own deaths by SIGTERM or SIGINT, in a row
"""

FOLDED_FAILURES = """
ALTER TABLE task_failures
    ADD COLUMN first_attempt integer,                     -- the row stands for attempts from this one on
    ADD COLUMN failure_count integer NOT NULL DEFAULT 1;
"""

STATEMENTS: tuple[str, ...] = (
    HOST_FAILURES,
    "CREATE INDEX host_failures_by_manager ON host_failures (manager_id)",
    AVOIDED_HOST,
    "ALTER TABLE open_task VALIDATE CONSTRAINT open_task_state_check",
    CHARGES,
    FOLDED_FAILURES,
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
