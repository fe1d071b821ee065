"""Worker services: the named tasks that they support, their registrations, and what they execute.

Existing tables get nullable columns, wider checks (``NOT VALID`` first) and indexes without rows of hosts, so that
the version before this one goes on.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NAMED_TASKS = """
CREATE TABLE named_tasks (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_group_id   bigint NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
    namespace       text NOT NULL,
    name            text NOT NULL,
    version         text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (user_group_id, namespace, name, version)
);
"""

WORKER_SERVICES = """
CREATE TABLE worker_services (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    worker_id       text NOT NULL UNIQUE,          -- as in payment_processor_1
    creator_id      bigint NOT NULL REFERENCES users (id),
    metadata        jsonb NOT NULL DEFAULT '{}',   -- version, runtime, host name, process id
    tags            text[] NOT NULL DEFAULT '{}',
    labels          text[] NOT NULL DEFAULT '{}',
    token_version   integer NOT NULL DEFAULT 1,
    incarnation     bigint NOT NULL DEFAULT 0,     -- of its present process
    machine_id      text,
    slots           integer NOT NULL DEFAULT 1 CHECK (slots > 0),
    silence_seconds double precision NOT NULL DEFAULT 600 CHECK (silence_seconds >= 10),
    draining_since  timestamptz,
    drain_reason    text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);
"""

ROLES = """
CREATE TABLE user_group_workers (
    user_group_id   bigint NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
    service_id      bigint NOT NULL REFERENCES worker_services (id) ON DELETE CASCADE,
    role            text NOT NULL CHECK (role IN ('read', 'write', 'admin')),
    PRIMARY KEY (user_group_id, service_id)
);
"""

ASSOCIATIONS = """
CREATE TABLE worker_named_tasks (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id      bigint NOT NULL REFERENCES worker_services (id) ON DELETE CASCADE,
    named_task_id   bigint NOT NULL REFERENCES named_tasks (id) ON DELETE CASCADE,
    configuration   jsonb NOT NULL DEFAULT '{}',
    configuration_version integer NOT NULL DEFAULT 1,
    priority        integer NOT NULL DEFAULT 100,  -- higher is preferred
    max_concurrent  integer CHECK (max_concurrent > 0),
    withdrawn_at    timestamptz,                   -- left out of a later registration
    created_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (service_id, named_task_id)
);
"""

REGISTRATIONS = """
-- History; the current one has no unregistered_at. No index holds a column that a heartbeat writes, so that
-- each heartbeat is a HOT update.
CREATE TABLE worker_registrations (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id      bigint NOT NULL REFERENCES worker_services (id) ON DELETE CASCADE,
    incarnation     bigint NOT NULL,
    connection_type text NOT NULL CHECK (connection_type IN ('pull', 'tcp', 'unix')),
    connection_details jsonb NOT NULL DEFAULT '{}',
    registered_at   timestamptz NOT NULL DEFAULT now(),
    last_heartbeat_at timestamptz,
    waiting_until   timestamptz,                   -- a claim of it waits: it has a free slot
    alive_until     timestamptz NOT NULL,
    unregistered_at timestamptz,
    failure_reason  text,
    CHECK (unregistered_at IS NOT NULL OR failure_reason IS NULL)
) WITH (fillfactor = 50);
"""

SERVICE_GROUPS = """
ALTER TABLE task_groups
    ADD COLUMN preference_seconds double precision CHECK (preference_seconds >= 0),
    DROP CONSTRAINT task_groups_kind_check,
    ADD CONSTRAINT task_groups_kind_check CHECK (kind IN ('managed', 'direct', 'service')) NOT VALID;
"""

SERVICE_LEASES = """
-- A lease of a worker service ends with its registration and has no clock of its own.
ALTER TABLE leases
    DROP CONSTRAINT leases_check3,
    ADD CONSTRAINT leases_alive_until_check
        CHECK (kind = 'worker' OR state NOT IN ('active', 'ending') OR alive_until IS NOT NULL) NOT VALID;
"""

SERVICE_CLAIMS = """
-- Which service executed which attempt, with which version of its configuration.
CREATE TABLE service_claims (
    task_id         bigint NOT NULL,
    attempt         integer NOT NULL,
    service_id      bigint NOT NULL,
    configuration_version integer NOT NULL,
    claimed_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task_id, attempt)
);
"""

TOKEN_ENDS = tuple(
    f"ALTER TABLE {table} {change}"
    for table in ("users", "managers", "worker_services")
    # The end of the last valid token; null: not known, of a row that is older than this column.
    for change in (
        "ADD COLUMN tokens_expire_at timestamptz",
        "ALTER COLUMN tokens_expire_at SET DEFAULT now()",
    )
)

STATEMENTS: tuple[str, ...] = (
    NAMED_TASKS,
    WORKER_SERVICES,
    ROLES,
    "CREATE INDEX user_group_workers_service ON user_group_workers (service_id)",
    ASSOCIATIONS,
    "CREATE INDEX worker_named_tasks_task ON worker_named_tasks (named_task_id, priority DESC)"
    " WHERE withdrawn_at IS NULL",
    REGISTRATIONS,
    "CREATE UNIQUE INDEX worker_registrations_current ON worker_registrations (service_id)"
    " WHERE unregistered_at IS NULL",
    "CREATE INDEX worker_registrations_history ON worker_registrations (service_id, id DESC)",
    "CREATE INDEX worker_registrations_began ON worker_registrations (registered_at)",
    "CREATE INDEX worker_registrations_ended ON worker_registrations (unregistered_at)"
    " WHERE unregistered_at IS NOT NULL",
    SERVICE_GROUPS,
    SERVICE_LEASES,
    "ALTER TABLE open_task ADD COLUMN named_task_id bigint",
    SERVICE_CLAIMS,
    *TOKEN_ENDS,
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
