"""Which worker service has served which task group, for as long as the group is kept: its results name the service.

Ended leases say so for 30 days only; ``service_claims`` has no index by service, which each claim would have to write.
"""

from alembic import op

revision = "0015"
down_revision = "0014b"
branch_labels = None
depends_on = None

GROUP_SERVICES = """
-- Written when an ended lease is deleted; until then the lease says it.
CREATE TABLE group_services (
    group_id        bigint NOT NULL REFERENCES task_groups (id) ON DELETE CASCADE,
    service_id      bigint NOT NULL REFERENCES worker_services (id) ON DELETE CASCADE,
    PRIMARY KEY (service_id, group_id)
);
"""

STATEMENTS: tuple[str, ...] = (
    GROUP_SERVICES,
    "CREATE INDEX group_services_by_group ON group_services (group_id)",
    # All leases of the service since its first registration are in leases or in group_services. Of an older service
    # some may be in neither, so it stays.
    "ALTER TABLE worker_services ADD COLUMN groups_known boolean NOT NULL DEFAULT false",
    "ALTER TABLE worker_services ALTER COLUMN groups_known SET DEFAULT true",
    # The highest number of a configuration whose row is deleted: no later one gets the same.
    "ALTER TABLE worker_services ADD COLUMN deleted_version integer NOT NULL DEFAULT 0",
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
