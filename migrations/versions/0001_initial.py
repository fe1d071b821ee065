"""The first schema: groups, hosts, leases, environments, tasks, results, counters, outbox.

Rules that shape it (docs/design-notes.md has the reasons):
- bigint keys inside, uuids outside; the public id of a task is made from both numbers.
- ``open_task`` holds unfinished tasks only and is narrow; payload and results are insert-only.
- ``group_live`` is the one row where state and counters of a group meet; every edge is an update of it.
- No per-row triggers, no foreign keys from task rows (one write path keeps them whole).
- Nothing here needs more than PostgreSQL 15.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PEOPLE = """
CREATE TABLE users (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    username        text NOT NULL UNIQUE,
    password_hash   text,
    is_admin        boolean NOT NULL DEFAULT false,
    state           text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'locked', 'deleted')),
    token_version   integer NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE user_groups (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    name            text NOT NULL UNIQUE,
    creator_id      bigint NOT NULL REFERENCES users,
    state           text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'locked', 'deleted')),
    created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE user_group_members (
    user_group_id   bigint NOT NULL REFERENCES user_groups ON DELETE CASCADE,
    user_id         bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    role            text NOT NULL CHECK (role IN ('read', 'write', 'admin')),
    PRIMARY KEY (user_group_id, user_id)
);
CREATE INDEX user_group_members_user ON user_group_members (user_id);
"""

HOSTS = """
CREATE TABLE managers (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    name            text NOT NULL,
    creator_id      bigint NOT NULL REFERENCES users,
    tags            text[] NOT NULL DEFAULT '{}',
    labels          text[] NOT NULL DEFAULT '{}',
    token_version   integer NOT NULL DEFAULT 1,
    draining        boolean NOT NULL DEFAULT false,
    -- what its agent said at the last hello
    incarnation     bigint NOT NULL DEFAULT 0,
    machine_id      text,
    boot_id         text,
    host_name       text,
    cores           integer[] NOT NULL DEFAULT '{}',
    agent_version   text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX managers_tags ON managers USING gin (tags);
-- Contact moves every 3 s, so it has a narrow row of its own.
CREATE TABLE manager_live (
    manager_id      bigint PRIMARY KEY REFERENCES managers ON DELETE CASCADE,
    last_contact_at timestamptz,
    offline         boolean NOT NULL DEFAULT true
) WITH (fillfactor = 50);
CREATE TABLE user_group_managers (
    user_group_id   bigint NOT NULL REFERENCES user_groups ON DELETE CASCADE,
    manager_id      bigint NOT NULL REFERENCES managers ON DELETE CASCADE,
    role            text NOT NULL CHECK (role IN ('read', 'write', 'admin')),
    PRIMARY KEY (user_group_id, manager_id)
);
CREATE INDEX user_group_managers_manager ON user_group_managers (manager_id);
"""

GROUPS = """
CREATE TABLE task_groups (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    name            text NOT NULL,
    kind            text NOT NULL DEFAULT 'managed' CHECK (kind IN ('managed', 'direct')),
    user_group_id   bigint NOT NULL REFERENCES user_groups,
    creator_id      bigint NOT NULL REFERENCES users,
    tags            text[] NOT NULL DEFAULT '{}',
    labels          text[] NOT NULL DEFAULT '{}',
    tag_match       text NOT NULL DEFAULT 'all' CHECK (tag_match IN ('all', 'any')),
    priority        integer NOT NULL DEFAULT 0,
    worker_allocation_plan      jsonb NOT NULL,
    environment_setup_hook      jsonb,
    environment_teardown_hook   jsonb,
    auto_close_timeout_seconds  double precision CHECK (auto_close_timeout_seconds > 0),
    close_deadline              timestamptz,
    max_managers                integer CHECK (max_managers > 0),
    assignment_method           text NOT NULL DEFAULT 'tag_matched'
                                CHECK (assignment_method IN ('tag_matched', 'user_specified')),
    reopen_on_submit            boolean NOT NULL DEFAULT false,
    cancel_grace_seconds        double precision NOT NULL DEFAULT 30,
    host_lost_after_seconds     double precision CHECK (host_lost_after_seconds >= 10),
    fence                       text NOT NULL DEFAULT 'finish' CHECK (fence IN ('finish', 'kill')),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (user_group_id, name)
);
CREATE INDEX task_groups_tags ON task_groups USING gin (tags);
CREATE INDEX task_groups_labels ON task_groups USING gin (labels);
CREATE UNIQUE INDEX task_groups_direct ON task_groups (user_group_id) WHERE kind = 'direct';

CREATE TABLE task_group_managers (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_group_id       bigint NOT NULL REFERENCES task_groups ON DELETE CASCADE,
    manager_id          bigint NOT NULL REFERENCES managers ON DELETE CASCADE,
    assignment_method   text NOT NULL CHECK (assignment_method IN ('tag_matched', 'user_specified')),
    matched_tags        text[],
    added_at            timestamptz NOT NULL DEFAULT now(),
    added_by_user_id    bigint REFERENCES users,
    UNIQUE (task_group_id, manager_id)
);
CREATE INDEX idx_task_group_managers_task_group ON task_group_managers (task_group_id);
CREATE INDEX idx_task_group_managers_manager ON task_group_managers (manager_id);

-- State and counters of a group in one row: its row lock orders submits, reports and endings.
CREATE TABLE group_live (
    group_id        bigint PRIMARY KEY REFERENCES task_groups ON DELETE CASCADE,
    state           text NOT NULL DEFAULT 'open'
                    CHECK (state IN ('open', 'closed', 'complete', 'cancelled')),
    discarding      boolean NOT NULL DEFAULT false,
    kill_running    boolean NOT NULL DEFAULT false,
    grace_seconds   double precision,
    reason          text,
    hungry          boolean NOT NULL DEFAULT false,    -- someone waits for work (protocol P7)
    watched         boolean NOT NULL DEFAULT false,    -- someone waits for any change
    total           bigint NOT NULL DEFAULT 0,
    unfinished      bigint NOT NULL DEFAULT 0 CHECK (unfinished >= 0),
    succeeded       bigint NOT NULL DEFAULT 0,
    failed          bigint NOT NULL DEFAULT 0,
    cancelled       bigint NOT NULL DEFAULT 0,
    drain_seq       bigint NOT NULL DEFAULT 0,
    last_task_submitted_at  timestamptz,
    opened_at       timestamptz NOT NULL DEFAULT now(),
    closed_at       timestamptz,
    terminal_at     timestamptz,
    settled_at      timestamptz,
    result          text CHECK (result IN ('success', 'tasks_failed', 'setup_failed',
                                           'teardown_degraded', 'cancelled')),
    CHECK (total = unfinished + succeeded + failed + cancelled),
    CHECK ((terminal_at IS NOT NULL) = (state IN ('complete', 'cancelled'))),
    CHECK (settled_at IS NULL OR state IN ('complete', 'cancelled')),
    CHECK ((settled_at IS NULL) = (result IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX group_live_unsettled ON group_live (group_id) WHERE settled_at IS NULL;
"""

LEASES = """
CREATE SEQUENCE lease_epoch;
CREATE TABLE leases (
    epoch           bigint PRIMARY KEY DEFAULT nextval('lease_epoch'),
    kind            text NOT NULL DEFAULT 'manager' CHECK (kind IN ('manager', 'worker')),
    group_id        bigint NOT NULL REFERENCES task_groups ON DELETE CASCADE,
    manager_id      bigint REFERENCES managers ON DELETE CASCADE,
    worker_uuid     uuid,                      -- holder of a lease of kind worker (protocol P10)
    worker_tags     text[],
    state           text NOT NULL DEFAULT 'offered'
                    CHECK (state IN ('offered', 'active', 'ending', 'ended')),
    acked_seq       bigint NOT NULL DEFAULT 0,
    alive_until     timestamptz,               -- liveness: moved by every contact, fences (P4)
    affinity_until  timestamptz,               -- contestable from then on; never fences
    offered_at      timestamptz NOT NULL DEFAULT now(),
    taken_at        timestamptz,
    last_claim_at   timestamptz,
    busy_at         timestamptz,               -- last renewal at which its group had work for it
    ended_at        timestamptz,
    end_reason      text,
    CHECK ((manager_id IS NOT NULL) = (kind = 'manager')),
    CHECK ((worker_uuid IS NOT NULL) = (kind = 'worker')),
    CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
    CHECK (state NOT IN ('active', 'ending') OR alive_until IS NOT NULL)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX leases_one_per_manager ON leases (manager_id)
    WHERE kind = 'manager' AND state <> 'ended';
CREATE UNIQUE INDEX leases_one_per_worker ON leases (worker_uuid)
    WHERE kind = 'worker' AND state <> 'ended';
CREATE INDEX leases_live_by_group ON leases (group_id) WHERE state <> 'ended';
CREATE INDEX leases_alive_until ON leases (alive_until) WHERE state IN ('active', 'ending');

CREATE TABLE environments (
    manager_id      bigint NOT NULL REFERENCES managers ON DELETE CASCADE,
    group_id        bigint NOT NULL REFERENCES task_groups ON DELETE CASCADE,
    state           text NOT NULL
                    CHECK (state IN ('preparing', 'ready', 'tearing_down', 'gone', 'owed')),
    fingerprint     text NOT NULL,             -- of the setup hook that made it
    epoch           bigint,                    -- lease under which setup last ran
    machine_id      text,
    boot_id         text,
    degraded        boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    changed_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (manager_id, group_id)
);
CREATE INDEX environments_by_group ON environments (group_id) WHERE state <> 'gone';

CREATE TABLE hook_runs (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    manager_id      bigint NOT NULL REFERENCES managers ON DELETE CASCADE,
    group_id        bigint NOT NULL REFERENCES task_groups ON DELETE CASCADE,
    epoch           bigint,
    kind            text NOT NULL CHECK (kind IN ('setup', 'teardown')),
    state           text NOT NULL CHECK (state IN ('waiting', 'running', 'succeeded', 'failed')),
    exit_code       integer,
    signal          integer,
    message         text,
    stdout_tail     text,
    stderr_tail     text,
    retry_count     integer NOT NULL DEFAULT 0,
    started_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz
);
CREATE INDEX hook_runs_by_group ON hook_runs (group_id, manager_id, kind);
"""

TASKS = """
CREATE SEQUENCE task_id;
-- Payload: written once, never rewritten. spec is json, not jsonb: kept byte for byte, any escape allowed.
CREATE TABLE task (
    id              bigint PRIMARY KEY DEFAULT nextval('task_id'),
    group_id        bigint NOT NULL,
    spec            json NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX task_by_group ON task (group_id, id);

-- Unfinished tasks only. state: 0 ready, 1 claimed, 4 delayed until not_before.
CREATE TABLE open_task (
    group_id        bigint NOT NULL,
    id              bigint NOT NULL,
    priority        integer NOT NULL,
    state           smallint NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 4)),
    attempt         integer NOT NULL DEFAULT 0,
    epoch           bigint,
    claim_seq       bigint,
    started_at      timestamptz,
    not_before      timestamptz,
    exit_failures   smallint NOT NULL DEFAULT 0,
    crash_failures  smallint NOT NULL DEFAULT 0,
    lost_count      smallint NOT NULL DEFAULT 0,
    -- Its present attempt has ended by a report (a retry): no other report of it counts.
    spent           boolean NOT NULL DEFAULT false,
    -- The retry policy, here so that a report need not read the payload.
    max_attempts    smallint NOT NULL DEFAULT 1,
    retry_delay_seconds     real NOT NULL DEFAULT 0,
    retry_exit_codes        integer[],
    dedup_key       text,
    PRIMARY KEY (group_id, id),
    CHECK ((state = 1) = (epoch IS NOT NULL)),
    CHECK ((state = 1) = (claim_seq IS NOT NULL)),
    CHECK ((state = 4) = (not_before IS NOT NULL)),
    CHECK (NOT (spent AND state = 1))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX open_task_ready ON open_task (group_id, priority DESC, id) WHERE state = 0;
CREATE INDEX open_task_claimed ON open_task (group_id, epoch) WHERE state = 1;
CREATE INDEX open_task_delayed ON open_task (group_id, not_before) WHERE state = 4;
CREATE UNIQUE INDEX open_task_dedup ON open_task (group_id, dedup_key) WHERE dedup_key IS NOT NULL;

CREATE TABLE task_result (
    task_id         bigint PRIMARY KEY,
    group_id        bigint NOT NULL,
    seq             bigint NOT NULL,           -- 1, 2, 3 … in the order of commits, no gaps (see tasks.sql)
    state           text NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled')),
    attempt         integer NOT NULL,
    manager_id      bigint,
    kind            text,
    exit_code       integer,
    signal          integer,
    started_at      timestamptz,
    finished_at     timestamptz,
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    detail          json
);
CREATE INDEX task_result_by_group ON task_result (group_id, state, task_id);
CREATE UNIQUE INDEX task_result_in_order ON task_result (group_id, seq);

-- Every attempt that failed and was followed by another, or ended the task by a crash or a loss.
CREATE TABLE task_failures (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id         bigint NOT NULL,
    group_id        bigint NOT NULL,
    attempt         integer NOT NULL,
    manager_id      bigint,
    kind            text NOT NULL,
    exit_code       integer,
    signal          integer,
    detail          json,
    failed_at       timestamptz NOT NULL DEFAULT now(),
    UNIQUE (task_id, attempt)
);
CREATE INDEX task_failures_by_group ON task_failures (group_id, task_id);

CREATE TABLE submission (
    group_id        bigint NOT NULL REFERENCES task_groups ON DELETE CASCADE,
    idempotency_key text NOT NULL,
    part            integer NOT NULL DEFAULT 0,
    digest          bytea NOT NULL,            -- of the tasks: the key may not come with others
    task_ids        bigint[] NOT NULL,
    created         integer NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_id, idempotency_key, part)
);
"""

RETRIES = """
-- Which ended task was submitted again into which group, as which task, by which call of retry.
CREATE TABLE task_retries (
    group_id        bigint NOT NULL REFERENCES task_groups ON DELETE CASCADE,  -- into it
    task_id         bigint PRIMARY KEY,        -- once, into whichever group
    new_task_id     bigint NOT NULL,
    idempotency_key text NOT NULL
);
CREATE INDEX task_retries_by_group ON task_retries (group_id);
"""

MESSAGES = """
-- Everything PostgreSQL must send to Temporal, written in the transaction that caused it (protocol P6).
-- Never unique: a poke that is being sent must not swallow the next one.
CREATE TABLE outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind            text NOT NULL CHECK (kind IN ('task_group', 'manager', 'scheduler')),
    subject         uuid,                      -- task group or manager; null for the scheduler
    attempts        integer NOT NULL DEFAULT 0,
    due_at          timestamptz NOT NULL DEFAULT now(),
    created_at      timestamptz NOT NULL DEFAULT now(),
    CHECK ((subject IS NULL) = (kind = 'scheduler'))
);
CREATE INDEX outbox_due ON outbox (due_at, id);
"""

OUTPUT = """
-- Output of running tasks on its way to who follows them. Advisory: lost with a crash, bounded, soon deleted;
-- no state of a task depends on it.
CREATE UNLOGGED TABLE output_followers (
    id              uuid PRIMARY KEY,
    group_id        bigint NOT NULL,
    task_id         bigint,                    -- null: every task of the group
    until           timestamptz NOT NULL
);
CREATE INDEX output_followers_by_group ON output_followers (group_id);
CREATE UNLOGGED TABLE task_output (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id        bigint NOT NULL,
    task_id         bigint NOT NULL,
    attempt         integer NOT NULL,
    stream          text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    position        bigint NOT NULL,           -- of the first byte in all that the attempt has written there
    data            bytea NOT NULL,
    written_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX task_output_by_group ON task_output (group_id, id);
"""


def upgrade() -> None:
    for part in (PEOPLE, HOSTS, GROUPS, LEASES, TASKS, RETRIES, MESSAGES, OUTPUT):
        op.execute(part)


def downgrade() -> None:
    raise NotImplementedError("the first schema has nothing to go back to")
