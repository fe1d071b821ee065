"""Indexes and checks of 0004 to 0006 on tables that are in use, made while tasks are submitted, claimed and reported."""

from mitosis.store.pg.concurrently import execute_concurrently

revision = "0006b"
down_revision = "0006"
branch_labels = None
depends_on = None

STATEMENTS: tuple[str, ...] = (
    # Scheduling.
    "CREATE INDEX CONCURRENTLY group_live_deleting ON group_live (group_id) WHERE delete_when_settled",
    "CREATE INDEX CONCURRENTLY leases_contested ON leases (contested_at) WHERE contested_at IS NOT NULL",
    "ALTER TABLE task_group_managers VALIDATE CONSTRAINT task_group_managers_assignment_method_check",
    # Worker services.
    "ALTER TABLE task_groups VALIDATE CONSTRAINT task_groups_kind_check",
    "ALTER TABLE leases VALIDATE CONSTRAINT leases_alive_until_check",
    "CREATE UNIQUE INDEX CONCURRENTLY leases_one_per_worker_and_group ON leases (worker_uuid, group_id)"
    " WHERE kind = 'worker' AND state <> 'ended'",
    "DROP INDEX CONCURRENTLY IF EXISTS leases_one_per_worker",
    "CREATE INDEX CONCURRENTLY leases_of_worker ON leases (worker_uuid, group_id, epoch) WHERE kind = 'worker'",
    "CREATE INDEX CONCURRENTLY open_task_named ON open_task (named_task_id, group_id, priority DESC, id)"
    " WHERE state = 0 AND named_task_id IS NOT NULL",
    "CREATE INDEX CONCURRENTLY open_task_named_delayed ON open_task (named_task_id, not_before)"
    " WHERE state = 4 AND named_task_id IS NOT NULL",
    # Retention.
    "CREATE INDEX CONCURRENTLY group_live_bookkeeping ON group_live (settled_at)"
    " WHERE settled_at IS NOT NULL AND NOT bookkeeping_deleted",
    "CREATE INDEX CONCURRENTLY group_live_settled ON group_live (settled_at) WHERE settled_at IS NOT NULL",
    "CREATE INDEX CONCURRENTLY leases_ended ON leases (ended_at) WHERE state = 'ended'",
    "CREATE INDEX CONCURRENTLY leases_ended_by_group ON leases (group_id) WHERE state = 'ended'",
    "CREATE INDEX CONCURRENTLY environments_gone ON environments (changed_at) WHERE state = 'gone'",
    "CREATE INDEX CONCURRENTLY hook_runs_started ON hook_runs (started_at)",
    "CREATE INDEX CONCURRENTLY deleted_groups_finished ON deleted_groups (finished_at)"
    " WHERE finished_at IS NOT NULL",
    # Attempts that were requeued and whose report still counts (protocol P2).
    "CREATE INDEX CONCURRENTLY open_task_requeued ON open_task (group_id, claimed_by)"
    " WHERE claimed_by IS NOT NULL",
)
"""In this order, one statement each."""


def upgrade() -> None:
    execute_concurrently(STATEMENTS)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
