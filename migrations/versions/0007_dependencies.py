"""Dependencies between tasks: a task waits until others have succeeded.

New tables, two nullable columns, and a trigger that fires only for a task that others wait for: the version
before this one goes on, and what it ends is noted too (ADR 0014).
"""

from alembic import op

revision = "0007"
down_revision = "0006b"
branch_labels = None
depends_on = None

WAITING_TASKS = """
ALTER TABLE open_task
    ADD COLUMN waits_for integer,                  -- tasks that have to succeed before it; only of a blocked one
    ADD COLUMN has_children boolean,               -- NULL: no task waits for it
    ADD CONSTRAINT open_task_waits_for_check CHECK (state <> 2 OR waits_for > 0) NOT VALID;
"""

EDGES = """
-- Kept until the task group of the child is deleted.
CREATE TABLE task_edges (
    parent          bigint NOT NULL,
    child           bigint NOT NULL,
    child_group_id  bigint NOT NULL,
    PRIMARY KEY (parent, child_group_id, child)
);
"""

PARENTS = """
-- One row for each task with waiting children in a task group. outcome: it has ended, and its children up to
-- resolved_up_to are freed or cancelled; the row goes when all are.
CREATE TABLE task_parents (
    parent          bigint NOT NULL,
    child_group_id  bigint NOT NULL,
    outcome         text CHECK (outcome IN ('succeeded', 'failed', 'cancelled')),
    resolved_up_to  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, child_group_id)
);
"""

NOTE_ENDED_PARENT = """
-- The result of the task is written by the statement that deletes the row. A plan that was made while the tables
-- were small is kept: it has to use the index.
CREATE FUNCTION note_ended_parent() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off AS $$
DECLARE
    child_group bigint;
BEGIN
    FOR child_group IN
        UPDATE task_parents AS p
           SET outcome = coalesce((SELECT r.state FROM task_result AS r WHERE r.task_id = OLD.id), 'cancelled')
         WHERE p.parent = OLD.id AND p.outcome IS NULL
        RETURNING p.child_group_id
    LOOP
        PERFORM pg_notify('mitosis_wake', child_group || '>');
    END LOOP;
    RETURN NULL;
END $$
"""

STATEMENTS: tuple[str, ...] = (
    WAITING_TASKS,
    EDGES,
    # Without the group, or it would look as good as the primary key for the children of one parent.
    "CREATE INDEX task_edges_by_child ON task_edges (child)",
    PARENTS,
    "CREATE INDEX task_parents_due ON task_parents (child_group_id, parent) WHERE outcome IS NOT NULL",
    "CREATE INDEX task_parents_by_group ON task_parents (child_group_id)",
    NOTE_ENDED_PARENT,
    "CREATE TRIGGER open_task_parent_ended AFTER DELETE ON open_task"
    " FOR EACH ROW WHEN (OLD.has_children) EXECUTE FUNCTION note_ended_parent()",
)
"""In this order, one statement each."""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("nothing older is kept able to run on a newer database")
