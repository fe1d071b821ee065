"""Jobs: definitions that are stored in versions, each of which stays as it is."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

JOBS = """
CREATE TABLE jobs (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    user_group_id   bigint NOT NULL REFERENCES user_groups (id),
    name            text NOT NULL,
    latest          integer NOT NULL DEFAULT 0,     -- the number of its last version; 0: none yet
    UNIQUE (user_group_id, name)
);
"""

VERSIONS = """
-- Never updated.
CREATE TABLE job_versions (
    job_id          bigint NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    version         integer NOT NULL,
    digest          text NOT NULL,                  -- SHA-256 of the canonical form of the definition
    definition      json NOT NULL,                  -- fields that differ from their defaults
    creator_id      bigint NOT NULL REFERENCES users (id),
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, version)
);
"""

STATEMENTS: tuple[str, ...] = (JOBS, VERSIONS)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
