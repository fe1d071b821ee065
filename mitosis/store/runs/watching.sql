-- A run as its workflow sees it.

-- name: number
SELECT r.id FROM runs AS r WHERE r.uuid = %(run)s

-- name: situation
SELECT r.uuid AS run_id, true AS exists, r.state, r.job_name, o.name AS group_name, r.stopped_by, r.reason, n.*,
       extract(epoch FROM least(CASE WHEN r.stopped_by IS NULL THEN r.deadline END, n.next_deadline)
                          - clock_timestamp())::float8 AS next_in_seconds
  FROM runs AS r
  JOIN user_groups AS o ON o.id = r.user_group_id
 CROSS JOIN LATERAL (
      SELECT count(*) AS steps_total, count(*) FILTER (WHERE s.ended_at IS NOT NULL) AS steps_ended,
             coalesce(sum(s.created), 0)::bigint AS tasks_created,
             coalesce(sum(s.created - s.succeeded - s.failed - s.cancelled), 0)::bigint AS tasks_open,
             coalesce(sum(s.failed), 0)::bigint AS tasks_failed,
             coalesce((array_agg(s.name ORDER BY s.position) FILTER (WHERE s.state = 'running'))[1:10], '{}')
                 AS running_steps,
             min(s.deadline) FILTER (WHERE s.state = 'running' AND s.stopped_by IS NULL) AS next_deadline
        FROM run_steps AS s WHERE s.run_id = r.id) AS n
 WHERE r.uuid = %(run)s
