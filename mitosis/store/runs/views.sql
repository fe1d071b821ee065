-- Runs as the API shows them. The counts of the steps and of the run are of one revision.

-- name: find
SELECT r.id, r.uuid AS run_id, o.name AS group_name, r.revision, r.state FROM runs AS r JOIN user_groups AS o ON o.id = r.user_group_id
 WHERE r.uuid = %(run)s

-- name: progress
SELECT r.revision, r.state FROM runs AS r WHERE r.id = %(run)s

-- name: run
SELECT $columns$, r.parameters, (
           SELECT coalesce(json_agg(json_build_object(
                      'name', s.name, 'state', s.state, 'layer', s.layer, 'task_group_id', s.task_group, 'total', s.total,
                      'created', s.created, 'open', s.created - s.succeeded - s.failed - s.cancelled,
                      'succeeded', s.succeeded, 'failed', s.failed, 'cancelled', s.cancelled,
                      'stopped_by', s.stopped_by, 'reason', s.reason, 'taken', s.taken,
                      'taken_from', CASE WHEN s.source <> 0 OR s.taken > 0 THEN s.taken_from END,
                      'started_at', s.started_at, 'ended_at', s.ended_at, 'deadline', s.deadline)
                      ORDER BY s.position), '[]')
             FROM run_steps AS s WHERE s.run_id = r.id) AS steps, r.definition, r.digest
  FROM $tables$ WHERE r.uuid = %(run)s

-- name: definition
SELECT r.digest, r.definition FROM runs AS r WHERE r.uuid = %(run)s

-- name: runs
SELECT $columns$, r.id
  FROM $tables$
 WHERE r.id < %(before)s $of_creator$ $of_schedule$
   AND (%(states)s::text[] = '{}' OR r.state = ANY(%(states)s::text[]))
   AND (%(job)s::text IS NULL OR r.job_name = %(job)s)
   AND (%(group_name)s::text IS NULL OR o.name = %(group_name)s)
   AND r.labels @> %(labels)s::text[]
   AND EXISTS (SELECT FROM users AS w
                WHERE w.uuid = %(viewer)s
                  AND (w.is_admin OR EXISTS (SELECT FROM user_group_members AS m
                                              WHERE m.user_id = w.id AND m.user_group_id = r.user_group_id)))
 ORDER BY r.id DESC LIMIT %(limit)s

-- name: of_creator
AND r.creator_id = (SELECT c.id FROM users AS c WHERE c.username = %(created_by)s)

-- name: by_hand
AND r.schedule_id IS NULL

-- name: of_schedule
AND r.schedule_id = (SELECT f.id FROM schedules AS f JOIN user_groups AS g ON g.id = f.user_group_id
                      WHERE g.name = %(group_name)s AND f.name = %(schedule)s)

-- name: columns
r.uuid AS run_id, r.name, r.state, r.revision, j.uuid AS job_id, r.job_name, r.version, o.name AS group_name,
       u.username AS created_by, r.labels, r.rerun_of, r.nominal_time, c.uuid AS schedule_id, c.name AS schedule, r.created_at, r.started_at, r.ended_at, r.deadline, r.stopped_by,
       r.reason, n.steps_total, n.steps_ended, n.tasks_created, n.tasks_open, n.tasks_succeeded, n.tasks_failed,
       n.tasks_cancelled

-- name: tables
runs AS r
  JOIN user_groups AS o ON o.id = r.user_group_id
  JOIN users AS u ON u.id = r.creator_id
  LEFT JOIN jobs AS j ON j.id = r.job_id
  LEFT JOIN schedules AS c ON c.id = r.schedule_id
 CROSS JOIN LATERAL (
      SELECT count(*) AS steps_total, count(*) FILTER (WHERE s.ended_at IS NOT NULL) AS steps_ended,
             coalesce(sum(s.created), 0) AS tasks_created,
             coalesce(sum(s.created - s.succeeded - s.failed - s.cancelled), 0) AS tasks_open,
             coalesce(sum(s.succeeded), 0) AS tasks_succeeded, coalesce(sum(s.failed), 0) AS tasks_failed,
             coalesce(sum(s.cancelled), 0) AS tasks_cancelled
        FROM run_steps AS s WHERE s.run_id = r.id) AS n

-- name: step
SELECT CASE WHEN s.source = 0 THEN s.id ELSE s.source END AS id, s.created
  FROM run_steps AS s JOIN runs AS r ON r.id = s.run_id WHERE r.uuid = %(run)s AND s.name = %(step)s

-- name: tasks
-- A window of indexes, so that no page reads a whole array.
SELECT p.start + t.n - 1 AS index, t.id AS task_id, g.uuid AS task_group_id, x.state, x.attempt, x.result, x.kind,
       x.message, x.started_at, x.finished_at
  FROM step_tasks AS p CROSS JOIN LATERAL unnest(p.task_ids) WITH ORDINALITY AS t (id, n)
  JOIN task AS k ON k.id = t.id JOIN task_groups AS g ON g.id = k.group_id
 CROSS JOIN LATERAL (
      SELECT coalesce(r.state, CASE WHEN o.state = 4 AND o.not_before > now() THEN 'delayed'
                                    WHEN o.state = 2 THEN 'blocked'
                                    WHEN o.state = 1 AND o.started_at IS NOT NULL THEN 'running'
                                    ELSE 'ready' END) AS state,
             coalesce(r.attempt, o.attempt, 0) AS attempt, r.detail -> 'result' AS result, r.kind,
             r.detail -> 'message' AS message, coalesce(r.started_at, o.started_at) AS started_at, r.finished_at
        FROM (SELECT k.id) AS one
        LEFT JOIN task_result AS r ON r.task_id = k.id
        LEFT JOIN open_task AS o ON o.group_id = k.group_id AND o.id = k.id) AS x
 WHERE p.step_id = %(step)s AND p.start < %(stop)s AND p.start + cardinality(p.task_ids) > %(start)s
   AND p.start + t.n - 1 >= %(start)s AND p.start + t.n - 1 < %(stop)s
   AND (%(state)s::text IS NULL OR x.state = %(state)s)
 ORDER BY 1 LIMIT %(limit)s
