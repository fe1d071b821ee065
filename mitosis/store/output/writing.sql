-- Live output from agents (protocol P7). Nothing here changes a task.

-- name: followed
-- The followers of the group of a lease that this manager holds.
SELECT l.group_id, l.state AS lease_state,
       coalesce(array_agg(DISTINCT f.task_id) FILTER (WHERE f.task_id IS NOT NULL), '{}') AS tasks,
       coalesce(bool_or(f.id IS NOT NULL AND f.task_id IS NULL), false) AS everything,
       extract(epoch FROM min(f.until) - now())::float8 AS expires_in_seconds
  FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  LEFT JOIN output_followers AS f ON f.group_id = l.group_id AND f.until > now() AND f.read_to IS NULL
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
                    WHERE f.group_id = h.group_id AND f.until > now() AND f.read_to IS NULL
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

-- name: write_whole
-- Output for readers that want all of it, fenced as above. All chunks are kept or none: none while a reader is
-- behind, or without a reader. The locked rows of the readers order the writers of a group, so row ids are
-- drawn in the order of commits and a reader that has read up to a row has missed none.
WITH held AS MATERIALIZED (
    SELECT l.group_id, l.epoch, l.manager_id, l.state
      FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
     WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s AND l.state IN ('active', 'ending')
), readers AS MATERIALIZED (
    SELECT f.read_to FROM output_followers AS f JOIN held AS h ON h.group_id = f.group_id
     WHERE f.read_to IS NOT NULL AND f.until > now()
     ORDER BY f.id FOR UPDATE OF f
), reader AS MATERIALIZED (
    SELECT min(read_to) AS read_to FROM readers
), backlog AS MATERIALIZED (
    SELECT count(*) >= %(most)s AS full
      FROM held AS h, reader AS r, task_output AS t WHERE t.group_id = h.group_id AND t.id > r.read_to AND t.whole
), written AS (
    INSERT INTO task_output (group_id, task_id, attempt, stream, position, data, whole)
    SELECT h.group_id, c.id, c.attempt, c.stream, c.position, c.data, true
      FROM held AS h, reader AS r, backlog AS b,
           unnest(%(ids)s::bigint[], %(attempts)s::int[], %(streams)s::text[], %(positions)s::bigint[],
                  %(data)s::bytea[]) WITH ORDINALITY AS c (id, attempt, stream, position, data, nr)
     WHERE r.read_to IS NOT NULL AND NOT b.full
       AND EXISTS (SELECT FROM open_task AS o
                    WHERE o.group_id = h.group_id AND o.id = c.id AND o.attempt = c.attempt
                      AND o.state = 1 AND o.epoch = h.epoch)
     ORDER BY c.nr
    RETURNING task_id
), sums AS (
    SELECT count(*) AS n, coalesce(array_agg(DISTINCT task_id), '{}') AS tasks FROM written
)
SELECT h.group_id, h.state AS lease_state, s.n AS written, s.tasks,
       r.read_to IS NOT NULL AND b.full AS full,
       CASE WHEN s.n > 0 THEN pg_notify('mitosis_wake', h.group_id || '#') END AS notified_followers
  FROM held AS h, reader AS r, backlog AS b, sums AS s

-- name: trim_output
-- Unread output of one group is bounded: the oldest rows are deleted and reported as skipped. What a reader of
-- whole output does not have yet stays.
DELETE FROM task_output WHERE id IN (
    SELECT id FROM task_output WHERE group_id = %(group_number)s ORDER BY id DESC OFFSET %(keep)s)
   AND id <= coalesce((SELECT min(f.read_to) FROM output_followers AS f
                        WHERE f.group_id = %(group_number)s AND f.until > now()), 9223372036854775807)
