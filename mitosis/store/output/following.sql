-- Followers of live output. Nothing here changes a task.

-- name: follow
-- Add or renew one follower of a task, or (task null) of a whole group. Delete expired ones.
WITH gone AS (
    DELETE FROM output_followers WHERE until < now() - interval '1 minute'
), old AS (
    DELETE FROM task_output AS t WHERE t.written_at < now() - interval '1 minute'
       AND NOT EXISTS (SELECT FROM output_followers AS f
                        WHERE f.group_id = t.group_id AND f.read_to < t.id AND f.until > now())
), known AS (
    SELECT FROM output_followers WHERE id = %(follower)s
), follows AS (
    INSERT INTO output_followers (id, group_id, task_id, until)
    VALUES (%(follower)s, %(group_number)s, %(task)s, now() + make_interval(secs => %(seconds)s))
        ON CONFLICT (id) DO UPDATE SET until = excluded.until
    RETURNING group_id
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM known) THEN pg_notify('mitosis_wake', f.group_id || '~') END AS notified_agents
  FROM follows AS f

-- name: unfollow
WITH gone AS (
    DELETE FROM output_followers WHERE id = %(follower)s RETURNING group_id
)
SELECT pg_notify('mitosis_wake', g.group_id || '~') FROM gone AS g

-- name: output_after
SELECT t.id, t.task_id, t.attempt, t.stream, t.position, t.data
  FROM task_output AS t
 WHERE t.group_id = %(group_number)s AND t.id > %(after)s
   AND (%(task)s::bigint IS NULL OR t.task_id = %(task)s)
 ORDER BY t.id LIMIT %(limit)s
