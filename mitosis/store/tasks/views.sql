-- Single tasks as the API shows them.

-- name: tasks
-- A task is always in open_task or in task_result: a submit writes both rows or none.
SELECT t.id AS task_id, t.group_id, g.uuid AS task_group_id, t.spec::text AS spec, t.created_at,
       coalesce(r.state, CASE WHEN o.state = 4 AND o.not_before > now() THEN 'delayed'
                              WHEN o.state = 2 THEN 'blocked'
                              WHEN o.state = 1 AND o.started_at IS NOT NULL THEN 'running'
                              ELSE 'ready' END) AS state,
       coalesce(r.attempt, o.attempt) AS attempt, r.seq, o.priority, r.kind, r.exit_code, r.signal,
       m.name AS manager_name, w.worker_id, x.configuration_version,
       x.fraction, x.stage, x.message, x.progress_at, x.checkpoint::text AS checkpoint, coalesce(r.started_at, o.started_at) AS started_at, r.finished_at,
       r.detail::text AS detail, o.not_before AS next_attempt_at, o.exit_failures, o.max_attempts,
       o.crash_failures, o.lost_count, o.terminations, o.waits_for
  FROM task AS t
  JOIN task_groups AS g ON g.id = t.group_id
  LEFT JOIN open_task AS o ON o.group_id = t.group_id AND o.id = t.id
  LEFT JOIN task_result AS r ON r.task_id = t.id
  LEFT JOIN leases AS l ON l.epoch = o.epoch
  LEFT JOIN managers AS m ON m.id = coalesce(r.manager_id, l.manager_id)
  LEFT JOIN service_claims AS x ON x.task_id = t.id AND x.attempt = coalesce(r.attempt, o.attempt)
        AND (o.id IS NULL OR o.state = 1)
  LEFT JOIN worker_services AS w ON w.id = x.service_id
 WHERE t.group_id = %(group_number)s AND t.id = ANY(%(ids)s::bigint[])
 ORDER BY t.id

-- name: failures
SELECT f.attempt, f.kind, f.exit_code, f.signal, f.detail::text AS detail, f.failed_at, f.first_attempt,
       f.failure_count
  FROM task_failures AS f WHERE f.task_id = %(task)s AND f.group_id = %(group_number)s
 ORDER BY f.attempt

-- name: failures_of_tasks
-- Without output: a page of it could be very large.
SELECT f.task_id, f.attempt, f.kind, f.exit_code, f.signal, f.failed_at, f.first_attempt, f.failure_count
  FROM task_failures AS f
 WHERE f.group_id = %(group_number)s AND f.task_id = ANY(%(ids)s::bigint[])
 ORDER BY f.task_id, f.attempt
