"""Scheduling: verbs on hosts and single tasks, members of task groups, measured durations, settings."""

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

DRAINED_HOSTS = """
ALTER TABLE managers
    ADD COLUMN draining_since timestamptz,
    ADD COLUMN drain_reason text,
    ADD COLUMN deleted_at timestamptz;             -- kept, because results name the host
"""

TEMPLATES = """
CREATE TABLE task_group_templates (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    user_group_id   bigint NOT NULL REFERENCES user_groups (id),
    name            text NOT NULL,
    spec            jsonb NOT NULL,                -- the fields of a task group that were given
    creator_id      bigint NOT NULL REFERENCES users (id),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (user_group_id, name)
);
"""

MEMBERS = """
ALTER TABLE task_groups
    -- What its members were matched by at the last refresh; NULL: the present tags and tag_match.
    ADD COLUMN member_tags text[],
    ADD COLUMN member_tag_match text CHECK (member_tag_match IN ('all', 'any')),
    ADD COLUMN member_version bigint NOT NULL DEFAULT 0;  -- of the tags of hosts at that time
"""

FORMER_TAGS = """
-- The tags of a host before a change, while a group exists that was matched before the change.
CREATE TABLE former_manager_tags (
    manager_id      bigint NOT NULL REFERENCES managers (id) ON DELETE CASCADE,
    until_version   bigint NOT NULL,
    tags            text[] NOT NULL,
    PRIMARY KEY (manager_id, until_version)
);
"""

REMOVED_MEMBERS = """
ALTER TABLE task_group_managers
    DROP CONSTRAINT task_group_managers_assignment_method_check,
    ADD CONSTRAINT task_group_managers_assignment_method_check
        CHECK (assignment_method IN ('tag_matched', 'user_specified', 'removed')) NOT VALID;
"""

DURATIONS = """
-- Mean durations of setups and teardowns: of a task group (manager_id is NULL), of a host (group_id is NULL), and
-- of both together; and how much host time it was in all. drain: of leases that were ended for another task group.
-- kept: setups that were not needed, because a lease began in an environment that an earlier one had left.
CREATE TABLE environment_durations (
    group_id        bigint REFERENCES task_groups (id) ON DELETE CASCADE,
    manager_id      bigint REFERENCES managers (id) ON DELETE CASCADE,
    kind            text NOT NULL CHECK (kind IN ('setup', 'teardown', 'drain', 'kept')),
    mean_seconds    double precision NOT NULL,
    runs            integer NOT NULL,              -- counted up to the number that the mean remembers
    all_runs        bigint NOT NULL,
    all_seconds     double precision NOT NULL,
    CHECK (group_id IS NOT NULL OR manager_id IS NOT NULL)
);
"""

RUN_SECONDS = """
ALTER TABLE group_live
    ADD COLUMN runs bigint NOT NULL DEFAULT 0,     -- ended tasks whose duration is known, and its sum
    ADD COLUMN run_seconds double precision NOT NULL DEFAULT 0;
"""

SETTINGS = """
-- Bounds of the leases of a task group that has its own; NULL: the value of the deployment.
CREATE TABLE manager_config (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_group_id   bigint NOT NULL UNIQUE REFERENCES task_groups (id) ON DELETE CASCADE,
    lease_duration_seconds  double precision DEFAULT 3600,
    longest_lease_seconds   double precision,
    idle_threshold_seconds  double precision DEFAULT 300,
    longest_idle_seconds    double precision,
    preemption_grace_seconds double precision,
    updated_at      timestamptz NOT NULL DEFAULT now()
);
"""

OPEN_TASK_STATES = """
ALTER TABLE open_task
    DROP CONSTRAINT open_task_state_check,
    ADD CONSTRAINT open_task_state_check CHECK (state IN (0, 1, 2, 4, 5)) NOT VALID;
"""

LIVE_PROCESSES = """
-- The API and control processes that run now; knows: what a process of another version may not know.
CREATE TABLE live_processes (
    id              uuid PRIMARY KEY,
    kind            text NOT NULL CHECK (kind IN ('api', 'control')),
    version         text NOT NULL,
    host_name       text NOT NULL,
    pid             integer NOT NULL,
    knows           jsonb NOT NULL,
    started_at      timestamptz NOT NULL DEFAULT now(),
    beat_at         timestamptz NOT NULL
);
"""

FAILED_SETUPS = """
ALTER TABLE task_groups
    -- What becomes of it when its setup has failed on every host that may serve it.
    ADD COLUMN on_setup_failure text NOT NULL DEFAULT 'end_when_closed'
        CHECK (on_setup_failure IN ('end_when_closed', 'end', 'wait'));
"""

CLAIMANTS = """
ALTER TABLE open_task
    -- The manager that claimed the present attempt. NULL: the task is claimed and its epoch names the manager, or
    -- the attempt has been reported, or was requeued before this column existed: then no report of it counts.
    ADD COLUMN claimed_by bigint;
"""

CONTESTED_LEASES = """
ALTER TABLE leases
    ADD COLUMN renewed boolean NOT NULL DEFAULT false,    -- its first affinity has passed
    ADD COLUMN idle_until timestamptz,                    -- then a group that waits may take its host
    ADD COLUMN contested_at timestamptz,                  -- ended for another task group
    ADD COLUMN was_idle boolean NOT NULL DEFAULT false,   -- then, so that this is no move of C-36
    ADD COLUMN ask_back_at timestamptz;                   -- and when what has not started is asked back
"""

DECISIONS = """
-- The last decisions of the scheduler that changed something: all that they were made from, compressed.
CREATE TABLE scheduling_decisions (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    decided_at      timestamptz NOT NULL DEFAULT now(),
    inputs          bytea NOT NULL
);
"""

HOSTLESS_GROUPS = """
-- Task groups that have claimable tasks and neither a host nor one on the way, and since when. Written by rounds only,
-- which delete what is over: without a reference, so that no round waits for a task group.
CREATE TABLE hostless_groups (
    group_id        bigint PRIMARY KEY,
    since           timestamptz NOT NULL DEFAULT now()
);
"""

FLEET_CHANGES = """
-- What has changed in the facts about hosts, so that a process that keeps them reads only those hosts again: see
-- ADR 0013. Neither a host nor a task group: all of them.
CREATE TABLE fleet_changes (
    xid             xid8 NOT NULL DEFAULT pg_current_xact_id(),
    manager_id      bigint,
    group_id        bigint,                        -- hosts with an environment, a failure or a lease of it
    changed_at      timestamptz NOT NULL DEFAULT now()
);
"""

NOTE_CHANGED_HOSTS = """
CREATE FUNCTION note_changed_hosts() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO fleet_changes (manager_id) SELECT DISTINCT c.manager_id FROM changed AS c WHERE c.manager_id IS NOT NULL;
    RETURN NULL;
END $$
"""

NOTE_CHANGED_FACT = """
CREATE FUNCTION note_changed_fact() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_TABLE_NAME = 'managers' THEN
        INSERT INTO fleet_changes (manager_id) VALUES (OLD.id);
    ELSIF TG_TABLE_NAME = 'task_groups' THEN
        INSERT INTO fleet_changes (group_id) VALUES (OLD.id);
    ELSIF TG_TABLE_NAME = 'group_live' THEN
        INSERT INTO fleet_changes (group_id) VALUES (OLD.group_id);
    ELSE
        INSERT INTO fleet_changes (manager_id) SELECT OLD.manager_id WHERE OLD.manager_id IS NOT NULL;
    END IF;
    RETURN NULL;
END $$
"""

NOTE_EVERYTHING = """
CREATE FUNCTION note_all_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO fleet_changes DEFAULT VALUES;
    RETURN NULL;
END $$
"""

MARKED_TABLES = ("environments", "host_failures", "user_group_managers", "former_manager_tags")
"""Tables whose every change concerns hosts; none of them is written for a single task or contact."""

EMPTIED_TABLES = (*MARKED_TABLES, "leases", "managers", "manager_live", "group_live", "task_groups")


def _marked_when_emptied(table: str) -> str:
    return (
        f"CREATE TRIGGER {table}_truncate_changes_hosts AFTER TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION note_all_changed()"
    )


def _marked_by_statement(table: str, event: str) -> str:
    rows = "OLD" if event == "DELETE" else "NEW"
    return (
        f"CREATE TRIGGER {table}_{event.lower()}_changes_hosts AFTER {event} ON {table}"
        f" REFERENCING {rows} TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note_changed_hosts()"
    )


def _marked_by_row(table: str, event: str, columns: str = "", condition: str = "") -> str:
    """``columns`` are those whose change counts: a statement that sets no such column costs nothing."""
    if event == "UPDATE":
        names = columns.split()
        condition = condition or " OR ".join(f"OLD.{c} IS DISTINCT FROM NEW.{c}" for c in names)
        event = f"UPDATE OF {', '.join(names)}"
    name = f"{table}_{event.split()[0].lower()}_changes_hosts"
    when = f" WHEN ({condition})" if condition else ""
    return (
        f"CREATE TRIGGER {name} AFTER {event} ON {table}"
        f" FOR EACH ROW{when} EXECUTE FUNCTION note_changed_fact()"
    )


CHANGE_MARKS: tuple[str, ...] = (
    *(_marked_when_emptied(table) for table in EMPTIED_TABLES),
    *(
        _marked_by_statement(table, event)
        for table in MARKED_TABLES
        for event in ("INSERT", "UPDATE", "DELETE")
    ),
    _marked_by_statement("leases", "INSERT"),
    _marked_by_statement("leases", "DELETE"),
    _marked_by_row(
        "leases",
        "UPDATE",
        "state group_id manager_id draining offered_at taken_at ended_at affinity_until renewed freed_for contested_at",
    ),
    _marked_by_row("managers", "UPDATE", "name tags draining machine_id cores incarnation"),
    _marked_by_row("managers", "DELETE"),
    _marked_by_statement("manager_live", "INSERT"),
    _marked_by_statement("manager_live", "DELETE"),
    _marked_by_row(
        "manager_live",
        "UPDATE",
        "offline contact_since last_contact_at",
        "OLD.offline <> NEW.offline OR OLD.contact_since IS DISTINCT FROM NEW.contact_since"
        " OR OLD.last_contact_at IS NULL OR NEW.last_contact_at IS NULL"
        " OR NEW.offline AND OLD.last_contact_at <> NEW.last_contact_at",
    ),
    # No fact about a host depends on a task group before its row is there.
    _marked_by_row("group_live", "DELETE"),
    _marked_by_row(
        "group_live",
        "UPDATE",
        "state",
        "(OLD.state IN ('open', 'closed')) IS DISTINCT FROM (NEW.state IN ('open', 'closed'))",
    ),
    _marked_by_row("task_groups", "UPDATE", "name environment_setup_hook"),
)
"""What marks a host as changed. A row trigger looks at columns that change seldom, and costs nothing else."""

STATEMENTS: tuple[str, ...] = (
    TASK_STOPS,
    DRAINED_HOSTS,
    # Claims nothing more, and ends when it holds no task.
    "ALTER TABLE leases ADD COLUMN draining boolean NOT NULL DEFAULT false",
    "ALTER TABLE group_live ADD COLUMN delete_when_settled boolean NOT NULL DEFAULT false",
    TEMPLATES,
    "CREATE SEQUENCE tag_version",
    MEMBERS,
    "ALTER TABLE task_groups ALTER COLUMN member_version SET DEFAULT nextval('tag_version')",
    FORMER_TAGS,
    REMOVED_MEMBERS,
    # Members that tags match are computed; only what a user said is a row.
    "DELETE FROM task_group_managers WHERE assignment_method = 'tag_matched'",
    DURATIONS,
    "CREATE UNIQUE INDEX environment_durations_of ON environment_durations (group_id, manager_id, kind)"
    " NULLS NOT DISTINCT",
    "CREATE INDEX environment_durations_by_manager ON environment_durations (manager_id)",
    RUN_SECONDS,
    SETTINGS,
    OPEN_TASK_STATES,
    LIVE_PROCESSES,
    FAILED_SETUPS,
    # It was ended because its setup had failed on every host that may serve it.
    "ALTER TABLE group_live ADD COLUMN setup_failed boolean NOT NULL DEFAULT false",
    CLAIMANTS,
    CONTESTED_LEASES,
    DECISIONS,
    "ALTER TABLE scheduling_decisions ALTER COLUMN inputs SET STORAGE EXTERNAL",
    HOSTLESS_GROUPS,
    FLEET_CHANGES,
    "CREATE INDEX fleet_changes_xid ON fleet_changes (xid)",
    "INSERT INTO fleet_changes DEFAULT VALUES",
    NOTE_CHANGED_HOSTS,
    NOTE_CHANGED_FACT,
    NOTE_EVERYTHING,
    *CHANGE_MARKS,
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
