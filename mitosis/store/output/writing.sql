-- Live output from agents (protocol P7). Nothing here changes a task.

-- name: followed
-- The followers of the group of a lease that this manager holds.
SELECT l.group_id, l.state AS lease_state,
       coalesce(array_agg(DISTINCT f.task_id) FILTER (WHERE f.task_id IS NOT NULL), '{}') AS tasks,
       coalesce(bool_or(f.id IS NOT NULL AND f.task_id IS NULL), false) AS everything,
       extract(epoch FROM min(f.until) - now())::float8 AS expires_in_seconds
  FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  LEFT JOIN output_followers AS f ON f.group_id = l.group_id AND f.until > now()
 WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s AND l.state IN ('active', 'ending')
 GROUP BY l.group_id, l.state

-- name: write_output
-- Fenced by attempt, as a report is. Also, the lease must be live, and the attempt claimed under it or ended
-- by this manager. Output without a follower is not written.
WITH held AS MATERIALIZED (
    SELECT l.group_id, l.epoch, l.manager_id, l.state
      FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
     WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s AND l.state IN ('active', 'ending')
), written AS (
    INSERT INTO task_output (group_id, task_id, attempt, stream, position, data)
    SELECT h.group_id, c.id, c.attempt, c.stream, c.position, c.data
      FROM held AS h,
           unnest(%(ids)s::bigint[], %(attempts)s::int[], %(streams)s::text[], %(positions)s::bigint[],
                  %(data)s::bytea[]) WITH ORDINALITY AS c (id, attempt, stream, position, data, nr)
     WHERE EXISTS (SELECT FROM output_followers AS f
                    WHERE f.group_id = h.group_id AND f.until > now()
                      AND (f.task_id IS NULL OR f.task_id = c.id))
       AND (EXISTS (SELECT FROM open_task AS o
                     WHERE o.group_id = h.group_id AND o.id = c.id AND o.attempt = c.attempt
                       AND o.state = 1 AND o.epoch = h.epoch)
            OR EXISTS (SELECT FROM task_result AS r
                        WHERE r.task_id = c.id AND r.group_id = h.group_id AND r.attempt = c.attempt
                          AND r.manager_id = h.manager_id)
            OR EXISTS (SELECT FROM task_failures AS f
                        WHERE f.task_id = c.id AND f.group_id = h.group_id AND f.attempt = c.attempt
                          AND f.manager_id = h.manager_id))
     ORDER BY c.nr
    RETURNING 1
), sums AS (
    SELECT count(*) AS n FROM written
)
SELECT h.group_id, h.state AS lease_state, s.n AS written,
       CASE WHEN s.n > 0 THEN pg_notify('mitosis_wake', h.group_id || '#') END AS notified_followers
  FROM held AS h, sums AS s

-- name: trim_output
-- Unread output of one group is bounded: the oldest rows are deleted and reported as skipped.
DELETE FROM task_output WHERE id IN (
    SELECT id FROM task_output WHERE group_id = %(group_number)s ORDER BY id DESC OFFSET %(keep)s)
