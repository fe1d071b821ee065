"""Schedules of jobs, the starts of runs that they make, and the schedule and nominal time of a run.

New tables and nullable columns: the version before this one goes on, and starts no runs by time.
Its API answers 500 to the deletion of a job that has schedules, and deletes nothing.
"""

from alembic import op

revision = "0012"
down_revision = "0011c"
branch_labels = None
depends_on = None

SCHEDULES = """
CREATE TABLE schedules (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    user_group_id   bigint NOT NULL REFERENCES user_groups (id),
    creator_id      bigint NOT NULL REFERENCES users (id),      -- the owner: its runs are theirs
    job_id          bigint NOT NULL REFERENCES jobs (id),       -- deleted only without schedules
    name            text NOT NULL,
    version         integer,                        -- NULL: the last one at each time
    accepted_version integer,                       -- versions up to this one run, also those of others
    parameters      json NOT NULL,
    labels          text[] NOT NULL DEFAULT '{}',
    timing          json NOT NULL,                  -- cron, interval or calendar
    time_zone       text NOT NULL,
    start_at        timestamptz,
    end_at          timestamptz,
    overlap         text NOT NULL CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other',
                                                     'terminate_other', 'allow_all')),
    jitter_seconds  double precision NOT NULL,
    catch_up_seconds double precision NOT NULL,
    paused          boolean NOT NULL,
    note            text,
    revision        bigint NOT NULL DEFAULT 1,
    carried_revision bigint NOT NULL DEFAULT 0,     -- the last one that Temporal has
    problem         text,                           -- why Temporal refuses it
    problem_at      timestamptz,
    problem_revision bigint,
    refusal         text,                           -- why the last start has made no run
    refused_at      timestamptz,
    late_seconds    double precision,               -- how long after it the last time was stored
    reverted        text,                           -- a change by hand in Temporal that was undone
    reverted_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (user_group_id, name)
);
"""

SPANS = """
-- From when to when a schedule has which times. A paused one has no open span.
CREATE TABLE schedule_spans (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule_id     bigint NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
    timing          json NOT NULL,
    time_zone       text NOT NULL,
    start_at        timestamptz,
    end_at          timestamptz,
    from_at         timestamptz NOT NULL,           -- excluded; its times up to here are in schedule_starts
    to_at           timestamptz,                    -- included; NULL: open
    next_at         timestamptz                     -- its first time after from_at; NULL: not computed yet
);
"""

STARTS = """
-- Each run that a schedule is to start, has started, or has not started for a reason.
CREATE TABLE schedule_starts (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,    -- their order
    schedule_id     bigint NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
    nominal_time    timestamptz NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('time', 'trigger', 'backfill', 'temporal')),
    overlap         text,                           -- NULL: that of the schedule at its start
    ended_at        timestamptz,
    run_id          uuid,                           -- no reference: runs are deleted before it
    reason          text,
    failures        integer NOT NULL DEFAULT 0,     -- that do not pass
    UNIQUE (schedule_id, nominal_time),
    CHECK ((ended_at IS NULL AND run_id IS NULL AND reason IS NULL)
           OR (ended_at IS NOT NULL AND (run_id IS NULL) <> (reason IS NULL)))
);
"""

CHANGE_SPANS = """
-- Only another specification of the times, a pause or a resume begins another span. A pause leaves out the
-- times whose jitter has not passed.
CREATE FUNCTION change_schedule_spans() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF NEW.paused THEN
        UPDATE schedule_spans SET to_at = least(to_at, moment - make_interval(secs => NEW.jitter_seconds)), next_at = NULL
         WHERE schedule_id = NEW.id;
    ELSE
        UPDATE schedule_spans SET to_at = moment, next_at = NULL WHERE schedule_id = NEW.id AND to_at IS NULL;
        INSERT INTO schedule_spans (schedule_id, timing, time_zone, start_at, end_at, from_at)
        VALUES (NEW.id, NEW.timing, NEW.time_zone, NEW.start_at, NEW.end_at, moment);
    END IF;
    RETURN NULL;
END
$$;
"""

RUNS = """
ALTER TABLE runs
    ADD COLUMN schedule_id bigint,                  -- no reference: the run outlives its schedule
    ADD COLUMN nominal_time timestamptz,
    ADD COLUMN time_zone text
"""

POKES = """
ALTER TABLE outbox
    DROP CONSTRAINT outbox_kind_check,
    ADD CONSTRAINT outbox_kind_check CHECK (kind IN ('task_group', 'manager', 'scheduler', 'run', 'schedule'));
"""

STATEMENTS: tuple[str, ...] = (
    SCHEDULES,
    "CREATE INDEX schedules_of_job ON schedules (job_id)",
    SPANS,
    "CREATE INDEX schedule_spans_of ON schedule_spans (schedule_id, id)",
    "CREATE UNIQUE INDEX schedule_spans_open ON schedule_spans (schedule_id) WHERE to_at IS NULL",
    STARTS,
    "CREATE INDEX schedule_starts_waiting ON schedule_starts (schedule_id, id) WHERE ended_at IS NULL",
    "CREATE INDEX schedule_starts_without_run ON schedule_starts (schedule_id, ended_at) WHERE reason IS NOT NULL",
    CHANGE_SPANS,
    "CREATE TRIGGER schedule_added AFTER INSERT ON schedules"
    " FOR EACH ROW EXECUTE FUNCTION change_schedule_spans()",
    "CREATE TRIGGER schedule_times_changed AFTER UPDATE ON schedules FOR EACH ROW"
    " WHEN ((OLD.timing::text, OLD.time_zone, OLD.start_at, OLD.end_at, OLD.paused)"
    " IS DISTINCT FROM (NEW.timing::text, NEW.time_zone, NEW.start_at, NEW.end_at, NEW.paused))"
    " EXECUTE FUNCTION change_schedule_spans()",
    RUNS,
    POKES,
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
