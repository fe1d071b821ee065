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

STATEMENTS: tuple[str, ...] = (
    TASK_STOPS,
    DRAINED_HOSTS,
    # Claims nothing more, and ends when it holds no task.
    "ALTER TABLE leases ADD COLUMN draining boolean NOT NULL DEFAULT false",
    "ALTER TABLE group_live ADD COLUMN delete_when_settled boolean NOT NULL DEFAULT false",
    "CREATE INDEX group_live_deleting ON group_live (group_id) WHERE delete_when_settled",
    TEMPLATES,
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
