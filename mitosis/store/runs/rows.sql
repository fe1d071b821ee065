-- A run and its steps under its lock. Lock order: the run, group_live, task rows. Ends of tasks lock no run.

-- name: lock_run
-- SKIP LOCKED: who holds it looks once more after its commit.
SELECT r.id, r.uuid, r.state, r.definition, r.digest, r.parameters, r.job_name, r.version, r.stopped_by, r.reason,
       r.skip_cleanup, r.deadline <= clock_timestamp() AS overdue, u.uuid AS creator_id, o.name AS group_name,
       r.user_group_id, now() AS now, r.schedule_id, r.nominal_time, r.time_zone
  FROM runs AS r JOIN users AS u ON u.id = r.creator_id JOIN user_groups AS o ON o.id = r.user_group_id
 WHERE r.id = %(run)s AND r.ended_at IS NULL
   FOR UPDATE OF r SKIP LOCKED

-- name: count_ends
-- Each end is counted once: its row is deleted in the statement that counts it.
WITH gone AS (
    DELETE FROM step_ends AS e
     WHERE (e.step_id, e.task_id) IN (
           SELECT x.step_id, x.task_id FROM run_steps AS s JOIN step_ends AS x ON x.step_id = s.id
            WHERE s.run_id = %(run)s LIMIT %(limit)s)
    RETURNING e.step_id, e.state
), sums AS (
    SELECT g.step_id, count(*) FILTER (WHERE g.state = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE g.state = 'failed') AS failed, count(*) FILTER (WHERE g.state = 'cancelled') AS cancelled
      FROM gone AS g GROUP BY g.step_id
)
UPDATE run_steps AS s
   SET succeeded = s.succeeded + n.succeeded, failed = s.failed + n.failed, cancelled = s.cancelled + n.cancelled
  FROM sums AS n WHERE s.id = n.step_id

-- name: steps
SELECT s.id, s.name, s.state, s.task_group, s.total, s.created, s.succeeded, s.failed, s.cancelled, s.stopped_by,
       s.reason, s.source, s.reuses, s.taken, s.deadline, coalesce(s.deadline <= clock_timestamp(), false) AS overdue
  FROM run_steps AS s WHERE s.run_id = %(run)s ORDER BY s.position

-- name: save_steps
-- A step whose tasks were cancelled with their task group has the reason of that.
UPDATE run_steps AS s
   SET state = x.state, task_group = x.task_group, total = x.total, created = x.created,
       succeeded = s.succeeded + x.taken - s.taken, taken = x.taken, stopped_by = x.stopped_by,
       reason = coalesce(x.reason, CASE WHEN x.state = 'failed' AND x.stopped_by IS NULL AND s.cancelled > 0 THEN (
                    SELECT 'its task group has ended: ' || coalesce(v.reason, 'it was cancelled')
                      FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id
                     WHERE g.uuid = x.task_group AND (v.state = 'cancelled' OR v.kill_running OR v.setup_failed))
                END),
       deadline = x.deadline,
       started_at = CASE WHEN x.started THEN coalesce(s.started_at, now()) ELSE s.started_at END,
       ended_at = CASE WHEN x.ended THEN now() END
  FROM json_to_recordset(%(steps)s::json)
       AS x (id bigint, state text, task_group uuid, total int, created int, taken int, stopped_by text, reason text,
             deadline timestamptz, started boolean, ended boolean)
 WHERE s.id = x.id

-- name: groups
SELECT g.name, g.kind, g.task_group, g.standing, g.closed FROM run_groups AS g WHERE g.run_id = %(run)s

-- name: turn
-- Whether a pending run may start.
r.max_concurrent IS NULL
OR (NOT EXISTS (SELECT FROM runs AS b
                 WHERE b.user_group_id = r.user_group_id AND b.job_name = r.job_name AND b.ended_at IS NULL
                   AND b.state = 'pending' AND b.id < r.id)
    AND (SELECT count(*) FROM runs AS b
          WHERE b.user_group_id = r.user_group_id AND b.job_name = r.job_name AND b.ended_at IS NULL
            AND b.state = 'running') < r.max_concurrent)

-- name: notify
-- A run that is not through is carried on by an API process.
SELECT CASE WHEN %(changed)s THEN pg_notify('mitosis_wake', %(run)s::bigint || '%%') END,
       CASE WHEN %(changed)s AND %(due)s
            THEN pg_notify('mitosis_wake', (SELECT min(s.id) FROM run_steps AS s WHERE s.run_id = %(run)s) || '$') END

-- name: poke
WITH written AS (
    INSERT INTO outbox (kind, subject) SELECT 'run', r.uuid FROM runs AS r WHERE r.id = %(run)s
)
SELECT pg_notify('mitosis_outbox', '')

-- name: poke_schedule
WITH written AS (
    INSERT INTO outbox (kind, subject) SELECT 'schedule', s.uuid FROM schedules AS s WHERE s.id = %(schedule)s
)
SELECT pg_notify('mitosis_outbox', '')

-- name: lock_groups
-- From here until the commit no task of these groups ends. Every transaction locks several by number.
SELECT v.group_id FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE g.uuid = ANY(%(groups)s::uuid[])
 ORDER BY v.group_id
   FOR NO KEY UPDATE OF v
