"""Runs of jobs: steps, their task groups, their tasks by index, and the ends of tasks that are to be counted.

New tables, a nullable column, and a trigger that fires only for the task of a step: the version before this
one goes on, and what it ends is noted too (ADR 0015).
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

STEP_OF_TASKS = """
ALTER TABLE open_task ADD COLUMN step_id bigint;    -- NULL: it belongs to no run
"""

RUNS = """
CREATE TABLE runs (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    user_group_id   bigint NOT NULL REFERENCES user_groups (id),
    creator_id      bigint NOT NULL REFERENCES users (id),
    job_id          bigint REFERENCES jobs (id) ON DELETE SET NULL,     -- NULL: not stored, or deleted
    job_name        text NOT NULL,
    version         integer,
    digest          text NOT NULL,
    definition      json NOT NULL,                  -- never updated
    parameters      json NOT NULL,                  -- with the defaults
    name            text,
    labels          text[] NOT NULL DEFAULT '{}',
    idempotency_key text,
    asked           bytea,                          -- digest of the call with the key
    rerun_of        uuid,
    state           text NOT NULL DEFAULT 'pending'
                    CHECK (state IN ('pending', 'running', 'success', 'failed', 'cancelled')),
    revision        bigint NOT NULL DEFAULT 1,
    due             boolean NOT NULL DEFAULT true,  -- something is left to do that no end of a task announces
    max_concurrent  integer,                        -- runs of the job at the same time
    stopped_by      text CHECK (stopped_by IN ('cancel', 'timeout', 'failures', 'error')),
    reason          text,
    skip_cleanup    boolean NOT NULL DEFAULT false,
    grace_seconds   double precision,
    created_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    ended_at        timestamptz,
    deadline        timestamptz,
    deleting        boolean NOT NULL DEFAULT false, -- it goes when its task groups have
    CHECK ((ended_at IS NULL) = (state IN ('pending', 'running')))
);
"""

RUN_GROUPS = """
CREATE TABLE run_groups (
    run_id          bigint NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name            text NOT NULL,                  -- in the definition
    kind            text NOT NULL,
    task_group      uuid NOT NULL,
    standing        boolean NOT NULL,               -- it was there before, and is neither closed nor deleted
    closed          boolean NOT NULL DEFAULT false, -- no step needs it any more
    PRIMARY KEY (run_id, name, kind)
);
"""

RUN_STEPS = """
CREATE TABLE run_steps (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id          bigint NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name            text NOT NULL,
    position        integer NOT NULL,               -- in the order of the layers
    layer           integer NOT NULL,
    state           text NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'running', 'succeeded', 'failed', 'skipped', 'cancelled')),
    task_group      uuid,                           -- of its tasks
    total           integer,                        -- tasks when all are created
    created         integer NOT NULL DEFAULT 0,
    succeeded       integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    cancelled       integer NOT NULL DEFAULT 0,
    stopped_by      text CHECK (stopped_by IN ('cancel', 'timeout', 'failures', 'error')),
    reason          text,
    source          bigint NOT NULL DEFAULT 0,      -- the step of an earlier run that has the tasks; 0: itself
    taken_from      uuid,                           -- that run
    started_at      timestamptz,
    ended_at        timestamptz,
    deadline        timestamptz,
    UNIQUE (run_id, name),
    CHECK (succeeded + failed + cancelled <= created)
);
"""

STEP_TASKS = """
-- The tasks of a step from one index on, in their order. Never updated.
CREATE TABLE step_tasks (
    step_id         bigint NOT NULL REFERENCES run_steps (id) ON DELETE CASCADE,
    start           integer NOT NULL,
    task_ids        bigint[] NOT NULL,
    PRIMARY KEY (step_id, start)
);
"""

STEP_ENDS = """
-- Tasks that have ended and are not counted yet. Without a reference: a report locks no step.
CREATE TABLE step_ends (
    step_id         bigint NOT NULL,
    task_id         bigint NOT NULL,
    state           text NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled')),
    PRIMARY KEY (step_id, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
        autovacuum_vacuum_cost_delay = 0);
"""

NOTE_ENDED_TASK_OF_STEP = """
-- The result of the task is written by the statement that deletes the row. A plan that was made while the tables
-- were small is kept: it has to use the index.
CREATE FUNCTION note_ended_task_of_step() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO step_ends (step_id, task_id, state)
    VALUES (OLD.step_id, OLD.id,
            coalesce((SELECT r.state FROM task_result AS r WHERE r.task_id = OLD.id), 'cancelled'));
    PERFORM pg_notify('mitosis_wake', OLD.step_id || '$');
    RETURN NULL;
END $$
"""

POKES = """
ALTER TABLE outbox
    DROP CONSTRAINT outbox_kind_check,
    ADD CONSTRAINT outbox_kind_check CHECK (kind IN ('task_group', 'manager', 'scheduler', 'run'));
"""

STATEMENTS: tuple[str, ...] = (
    RUNS,
    "CREATE UNIQUE INDEX runs_by_key ON runs (user_group_id, idempotency_key) WHERE idempotency_key IS NOT NULL",
    "CREATE INDEX runs_of_group ON runs (user_group_id, id)",
    "CREATE INDEX runs_unfinished ON runs (user_group_id, job_name, id) WHERE ended_at IS NULL",
    "CREATE INDEX runs_deleting ON runs (id) WHERE deleting",
    "CREATE INDEX runs_reruns ON runs (rerun_of) WHERE rerun_of IS NOT NULL",
    "CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL",
    RUN_GROUPS,
    "CREATE INDEX run_groups_by_task_group ON run_groups (task_group)",
    RUN_STEPS,
    "CREATE INDEX run_steps_taken ON run_steps (taken_from) WHERE taken_from IS NOT NULL",
    STEP_TASKS,
    STEP_ENDS,
    NOTE_ENDED_TASK_OF_STEP,
    STEP_OF_TASKS,
    "CREATE TRIGGER open_task_of_step_ended AFTER DELETE ON open_task"
    " FOR EACH ROW WHEN (OLD.step_id IS NOT NULL) EXECUTE FUNCTION note_ended_task_of_step()",
    POKES,
)
"""In this order, one statement each. Tables that are in use come last, since claims wait from their locks on:
first the tasks, then the outbox, as in transactions that write both."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
