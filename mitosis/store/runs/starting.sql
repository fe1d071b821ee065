-- Starting runs.

-- name: add_run
-- No row: the user group has a run with this key, or the schedule one of this time.
INSERT INTO runs (user_group_id, creator_id, job_id, job_name, version, digest, definition, parameters, name, labels,
                  idempotency_key, asked, rerun_of, max_concurrent, schedule_id, nominal_time, time_zone)
SELECT o.id, u.id, j.id, %(job_name)s, %(version)s, %(digest)s, %(definition)s, %(parameters)s, %(name)s,
       %(labels)s::text[], %(key)s, %(asked)s, %(rerun_of)s::uuid, %(max_concurrent)s,
       %(schedule)s::bigint, %(nominal_time)s::timestamptz, %(time_zone)s::text
  FROM users AS u JOIN user_groups AS o ON o.name = %(group_name)s AND o.state = 'active'
  LEFT JOIN jobs AS j ON j.uuid = %(job)s::uuid
 WHERE u.uuid = %(user)s
    ON CONFLICT DO NOTHING
RETURNING id, uuid

-- name: run_with_key
SELECT r.uuid, r.asked FROM runs AS r JOIN user_groups AS o ON o.id = r.user_group_id
 WHERE o.name = %(group_name)s AND r.idempotency_key = %(key)s

-- name: run_of_time
SELECT r.id, r.uuid FROM runs AS r WHERE r.schedule_id = %(schedule)s AND r.nominal_time = %(nominal_time)s

-- name: runs_with_key
-- Of all user groups to which the user may submit.
SELECT r.uuid, r.asked
  FROM users AS u JOIN runs AS r ON r.idempotency_key = %(key)s AND r.asked = %(asked)s
 WHERE u.uuid = %(user)s
   AND (u.is_admin OR EXISTS (SELECT FROM user_group_members AS m
                               WHERE m.user_id = u.id AND m.user_group_id = r.user_group_id AND m.role <> 'read'))
 ORDER BY r.id LIMIT 1

-- name: add_steps
INSERT INTO run_steps (run_id, name, position, layer)
SELECT %(run)s, s.name, s.position, s.layer
  FROM unnest(%(names)s::text[], %(layers)s::int[]) WITH ORDINALITY AS s (name, layer, position)

-- name: lock_ended
-- It stays while a rerun takes over its steps.
SELECT r.id, r.uuid, r.state, r.definition, r.digest, r.parameters, r.job_name, r.version, r.name, r.labels,
       j.uuid AS job_id, o.name AS group_name, r.deleting, r.nominal_time, r.time_zone
  FROM runs AS r JOIN user_groups AS o ON o.id = r.user_group_id LEFT JOIN jobs AS j ON j.id = r.job_id
 WHERE r.uuid = %(run)s
   FOR SHARE OF r

-- name: ended_steps
-- present: its tasks, and so its results, have not been deleted.
SELECT s.name, s.state, s.created = 0 OR EXISTS (
           SELECT FROM step_tasks AS p JOIN task AS t ON t.id = p.task_ids[1]
            WHERE p.step_id = CASE WHEN s.source = 0 THEN s.id ELSE s.source END) AS present
  FROM run_steps AS s WHERE s.run_id = %(run)s

-- name: take_steps
-- A step that was itself taken over keeps its own source.
UPDATE run_steps AS n
   SET state = s.state, task_group = s.task_group, total = s.total, created = s.created, succeeded = s.succeeded,
       failed = s.failed, cancelled = s.cancelled, reason = s.reason, started_at = s.started_at, ended_at = s.ended_at,
       source = CASE WHEN s.source = 0 THEN s.id ELSE s.source END,
       taken_from = CASE WHEN s.source = 0 THEN r.uuid ELSE s.taken_from END
  FROM run_steps AS s JOIN runs AS r ON r.id = s.run_id
 WHERE n.run_id = %(run)s AND s.run_id = %(earlier)s AND s.name = n.name AND n.name = ANY(%(names)s::text[])

-- name: reuse_steps
-- These run again, but not their tasks that have succeeded.
UPDATE run_steps AS n SET reuses = s.id, taken_from = r.uuid
  FROM run_steps AS s JOIN runs AS r ON r.id = s.run_id
 WHERE n.run_id = %(run)s AND s.run_id = %(earlier)s AND s.name = n.name AND n.name = ANY(%(names)s::text[])
   AND s.source = 0 AND s.succeeded > 0
