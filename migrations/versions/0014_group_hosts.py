"""Which host has served which task group, for as long as the group is kept: its results name the host.

Ended leases say so for 30 days only; ``task_result`` has no index by host, which each report would have to write.
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

GROUP_HOSTS = """
-- Written when an ended lease is deleted; until then the lease says it.
CREATE TABLE group_hosts (
    group_id        bigint NOT NULL REFERENCES task_groups (id) ON DELETE CASCADE,
    manager_id      bigint NOT NULL REFERENCES managers (id) ON DELETE CASCADE,
    PRIMARY KEY (manager_id, group_id)
);
"""

STATEMENTS: tuple[str, ...] = (
    GROUP_HOSTS,
    "CREATE INDEX group_hosts_by_group ON group_hosts (group_id)",
    # All leases of the host since its registration are in leases or in group_hosts. Of an older host some may be
    # in neither, so a deleted one stays.
    "ALTER TABLE managers ADD COLUMN groups_known boolean NOT NULL DEFAULT false",
    "ALTER TABLE managers ALTER COLUMN groups_known SET DEFAULT true",
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
