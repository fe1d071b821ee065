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
                                                  'no_progress', 'tasks_failed')),
    -- Of tasks_failed: whether the host or the tasks are to blame.
    phase           text CHECK (phase IN ('watched', 'suspected', 'excused', 'cleared', 'quarantined')),
    failures        integer NOT NULL DEFAULT 1,    -- in a row
    reason          text NOT NULL,
    -- The failure counts while both are still those of the host and of the group.
    incarnation     bigint NOT NULL,
    hook            text NOT NULL,
    next_at         timestamptz,                   -- NULL: the passing of time does not end it
    tasks           bigint[] NOT NULL DEFAULT '{}',
    failed_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_id, manager_id, kind),
    CHECK ((phase IS NOT NULL) = (kind = 'tasks_failed'))
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

DEBTS = """
ALTER TABLE environments
    ADD COLUMN task_group_uuid uuid,               -- what a teardown needs once the group has gone
    ADD COLUMN task_group_name text,
    ADD COLUMN group_name      text,
    ADD COLUMN worker_count    integer,
    ADD COLUMN teardown_hook   jsonb;
"""

EXISTING_DEBTS = """
UPDATE environments AS e
   SET task_group_uuid = g.uuid, task_group_name = g.name, group_name = u.name,
       worker_count = (g.worker_allocation_plan ->> 'worker_count')::int,
       teardown_hook = g.environment_teardown_hook
  FROM task_groups AS g JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE g.id = e.group_id;
"""

DELETED_GROUPS = """
CREATE TABLE deleted_groups (
    group_id        bigint PRIMARY KEY,
    uuid            uuid NOT NULL,
    cancel_grace_seconds double precision NOT NULL,
    step            smallint NOT NULL DEFAULT 0,   -- how far its rows are deleted
    position        bigint NOT NULL DEFAULT 0,
    deleted_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz
);
"""

OUTPUT_READERS = """
ALTER TABLE output_followers
    ADD COLUMN read_to bigint                      -- a reader of whole output: it has the rows up to here
"""

FORGIVEN_FAILURES = """
ALTER TABLE task_failures
    ADD COLUMN forgiven boolean NOT NULL DEFAULT false;   -- its host was quarantined: the task has it back
"""

CONTACT_SINCE = """
ALTER TABLE manager_live
    ADD COLUMN contact_since timestamptz;          -- since when it has not been silent for suspect_after
"""

FREED_FOR = """
ALTER TABLE leases
    ADD COLUMN freed_for bigint;                   -- the group for which it was ended, until it gets the host
"""

PROBE = "ALTER TABLE task_groups ADD COLUMN environment_probe jsonb"

STATEMENTS: tuple[str, ...] = (
    HOST_FAILURES,
    "CREATE INDEX host_failures_by_manager ON host_failures (manager_id)",
    AVOIDED_HOST,
    "ALTER TABLE open_task VALIDATE CONSTRAINT open_task_state_check",
    "CREATE INDEX open_task_doubted ON open_task (group_id, avoid) WHERE state = 5",
    CHARGES,
    FOLDED_FAILURES,
    # What a host owes outlives the group; rows without a bound are deleted in chunks, after the group.
    "ALTER TABLE leases DROP CONSTRAINT leases_group_id_fkey",
    "ALTER TABLE environments DROP CONSTRAINT environments_group_id_fkey",
    "ALTER TABLE hook_runs DROP CONSTRAINT hook_runs_group_id_fkey",
    "ALTER TABLE submission DROP CONSTRAINT submission_group_id_fkey",
    "ALTER TABLE task_retries DROP CONSTRAINT task_retries_group_id_fkey",
    DEBTS,
    EXISTING_DEBTS,
    "CREATE INDEX environments_by_manager ON environments (manager_id) WHERE state <> 'gone'",
    DELETED_GROUPS,
    "CREATE INDEX deleted_groups_unfinished ON deleted_groups (group_id) WHERE finished_at IS NULL",
    OUTPUT_READERS,
    "ALTER TABLE task_output ADD COLUMN whole boolean NOT NULL DEFAULT false",
    FORGIVEN_FAILURES,
    CONTACT_SINCE,
    FREED_FOR,
    "CREATE INDEX leases_freed_for ON leases (freed_for) WHERE freed_for IS NOT NULL",
    PROBE,
    "ALTER TABLE manager_live ADD COLUMN report_trouble text",
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
