-- The first transaction of a deletion (protocol P8).

-- name: remove
-- The caller holds the group. It goes with its name, its counters and its hosts; the rest follows in chunks.
-- A host keeps what it needs to clean up after it. No row: the group is not settled.
WITH settled AS MATERIALIZED (
    SELECT g.id, g.uuid, g.name, u.name AS group_name, g.environment_teardown_hook AS teardown_hook,
           (g.worker_allocation_plan ->> 'worker_count')::int AS worker_count,
           coalesce(v.grace_seconds, g.cancel_grace_seconds) AS cancel_grace_seconds
      FROM task_groups AS g
      JOIN group_live AS v ON v.group_id = g.id
      JOIN user_groups AS u ON u.id = g.user_group_id
     WHERE g.id = %(group_number)s AND v.settled_at IS NOT NULL
), noted AS (
    INSERT INTO deleted_groups (group_id, uuid, cancel_grace_seconds)
    SELECT id, uuid, cancel_grace_seconds FROM settled
), kept AS (
    UPDATE environments AS e
       SET task_group_uuid = s.uuid, task_group_name = s.name, group_name = s.group_name,
           worker_count = s.worker_count, teardown_hook = s.teardown_hook
      FROM settled AS s WHERE e.group_id = s.id AND e.state <> 'gone' AND e.task_group_uuid IS NULL
), gone AS (
    DELETE FROM task_groups WHERE id IN (SELECT id FROM settled)
)
SELECT s.id, pg_notify('mitosis_wake', s.id || '!'), pg_notify('mitosis_wake', s.id || '~') FROM settled AS s
