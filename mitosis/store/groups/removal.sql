-- The first transaction of a deletion (protocol P8).

-- name: remove
-- The caller holds the group. It goes with its name, its counters and its hosts; the rest follows in chunks.
-- A host keeps what it needs to clean up after it. No row: the group is not settled.
WITH settled AS MATERIALIZED (
    SELECT g.id, g.uuid, g.name, g.kind, g.user_group_id, g.created_at, v.settled_at, v.result, v.total, v.succeeded,
           v.failed, v.cancelled, v.run_seconds, u.name AS group_name, g.environment_teardown_hook AS teardown_hook,
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
), counted AS (
    INSERT INTO deleted_group_days AS d (day, user_group_id, kind, result, groups, tasks, succeeded, failed,
                                         cancelled, group_seconds, run_seconds)
    SELECT (s.settled_at AT TIME ZONE 'UTC')::date, s.user_group_id, s.kind, s.result, 1, s.total, s.succeeded,
           s.failed, s.cancelled, extract(epoch FROM s.settled_at - s.created_at)::float8, s.run_seconds
      FROM settled AS s
        ON CONFLICT (day, user_group_id, kind, result) DO UPDATE
       SET groups = d.groups + 1, tasks = d.tasks + excluded.tasks, succeeded = d.succeeded + excluded.succeeded,
           failed = d.failed + excluded.failed, cancelled = d.cancelled + excluded.cancelled,
           group_seconds = d.group_seconds + excluded.group_seconds,
           run_seconds = d.run_seconds + excluded.run_seconds
), gone AS (
    DELETE FROM task_groups WHERE id IN (SELECT id FROM settled)
)
SELECT s.id, pg_notify('mitosis_wake', s.id || '!'), pg_notify('mitosis_wake', s.id || '~') FROM settled AS s
