-- Schedules as the control worker brings them to Temporal.

-- name: carried
SELECT s.uuid AS schedule_id, s.name, o.name AS user_group, j.name AS job, s.timing::jsonb || jsonb_build_object(
           'time_zone', s.time_zone, 'start_at', s.start_at, 'end_at', s.end_at) AS timing, s.overlap,
       s.jitter_seconds AS jitter, s.catch_up_seconds AS catch_up, s.paused, s.note, s.revision, s.carried_revision,
       CASE WHEN s.problem_revision = s.revision THEN s.problem END AS problem, clock_timestamp() AS now
  FROM schedules AS s JOIN user_groups AS o ON o.id = s.user_group_id JOIN jobs AS j ON j.id = s.job_id
 WHERE %(schedule)s::uuid IS NULL OR s.uuid = %(schedule)s
 ORDER BY s.id

-- name: due_schedules
-- Those that may have something to start. Temporal wakes us earlier.
SELECT s.uuid AS schedule_id FROM schedules AS s
 WHERE EXISTS (SELECT FROM schedule_spans AS p
                WHERE p.schedule_id = s.id
                  AND (p.next_at IS NULL OR p.next_at <= now() - make_interval(secs => s.jitter_seconds)))
    OR EXISTS (SELECT FROM schedule_starts AS x
                WHERE x.schedule_id = s.id AND x.ended_at IS NULL AND (NOT s.paused OR x.kind IN ('trigger', 'temporal')))
 ORDER BY s.id

-- name: note_carried
UPDATE schedules
   SET carried_revision = greatest(carried_revision, %(revision)s), problem = NULL, problem_at = NULL, problem_revision = NULL
 WHERE uuid = %(schedule)s AND (carried_revision < %(revision)s OR problem IS NOT NULL)

-- name: note_problem
UPDATE schedules SET problem = %(problem)s, problem_at = now(), problem_revision = %(revision)s
 WHERE uuid = %(schedule)s
   AND (problem, problem_revision) IS DISTINCT FROM (%(problem)s::text, %(revision)s::bigint)

-- name: note_reverted
UPDATE schedules SET reverted = %(what)s, reverted_at = now() WHERE uuid = %(schedule)s AND revision = %(revision)s
