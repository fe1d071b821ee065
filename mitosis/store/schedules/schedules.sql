-- Schedules as users make, see and change them.

-- name: add
-- No row: the user group has a schedule with this name.
INSERT INTO schedules (user_group_id, creator_id, job_id, name, version, accepted_version, parameters, labels, timing,
                       time_zone, start_at, end_at, overlap, jitter_seconds, catch_up_seconds, paused, note)
SELECT j.user_group_id, u.id, j.id, %(name)s, %(version)s, %(accepted_version)s, %(parameters)s, %(labels)s::text[],
       %(timing)s, %(time_zone)s, %(start_at)s, %(end_at)s, %(overlap)s, %(jitter)s, %(catch_up)s, %(paused)s, %(note)s
  FROM jobs AS j, users AS u WHERE j.uuid = %(job)s AND u.uuid = %(user)s
    ON CONFLICT (user_group_id, name) DO NOTHING
RETURNING uuid

-- name: change
UPDATE schedules
   SET creator_id = (SELECT u.id FROM users AS u WHERE u.uuid = %(user)s), version = %(version)s,
       accepted_version = %(accepted_version)s, parameters = %(parameters)s, labels = %(labels)s::text[],
       timing = %(timing)s, time_zone = %(time_zone)s, start_at = %(start_at)s, end_at = %(end_at)s, overlap = %(overlap)s,
       jitter_seconds = %(jitter)s, catch_up_seconds = %(catch_up)s, note = %(note)s, revision = revision + 1,
       updated_at = now()
 WHERE uuid = %(schedule)s AND revision = %(revision)s
RETURNING uuid

-- name: hold
-- No start of the schedule is carried out until the commit.
SELECT FROM schedules WHERE uuid = %(schedule)s FOR NO KEY UPDATE

-- name: pause
UPDATE schedules
   SET paused = true, note = coalesce(%(note)s, note), revision = revision + 1, updated_at = now()
 WHERE uuid = %(schedule)s AND (NOT paused OR coalesce(%(note)s, note) IS DISTINCT FROM note)

-- name: drop_spans
-- Times that are due, and not stored as starts yet.
DELETE FROM schedule_spans AS p USING schedules AS s WHERE s.uuid = %(schedule)s AND p.schedule_id = s.id

-- name: drop
UPDATE schedule_starts AS x SET ended_at = clock_timestamp(), reason = %(reason)s
  FROM schedules AS s WHERE s.uuid = %(schedule)s AND x.schedule_id = s.id AND x.ended_at IS NULL

-- name: resume
UPDATE schedules
   SET paused = false, note = coalesce(%(note)s, note), revision = revision + 1, updated_at = now()
 WHERE uuid = %(schedule)s AND paused

-- name: delete
DELETE FROM schedules WHERE uuid = %(schedule)s

-- name: schedule_columns
s.uuid AS schedule_id, s.name, o.name AS group_name, j.uuid AS job_id, j.name AS job_name,
       coalesce(to_json(s.version), '"latest"') AS version, j.latest AS latest_version, s.accepted_version, s.parameters,
       s.labels, s.timing ->> 'cron' AS cron, s.timing -> 'interval' AS interval, s.timing -> 'calendar' AS calendar,
       s.time_zone, s.start_at, s.end_at, s.overlap, s.jitter_seconds AS jitter, s.catch_up_seconds AS catch_up, s.paused,
       s.note, s.revision, s.carried_revision, u.username AS owner, s.created_at, s.updated_at, s.refusal,
       s.refused_at, s.problem, s.problem_at, s.late_seconds AS late_by, s.reverted, s.reverted_at,
       (SELECT json_build_object('run_id', r.uuid, 'state', r.state, 'nominal_time', r.nominal_time)
          FROM runs AS r WHERE r.schedule_id = s.id ORDER BY r.nominal_time DESC LIMIT 1) AS last_run,
       (SELECT json_build_object('nominal_time', x.nominal_time, 'reason', x.reason)
          FROM schedule_starts AS x WHERE x.schedule_id = s.id AND x.reason IS NOT NULL
         ORDER BY x.ended_at DESC LIMIT 1) AS without_run

-- name: schedule_tables
schedules AS s
  JOIN user_groups AS o ON o.id = s.user_group_id
  JOIN jobs AS j ON j.id = s.job_id
  JOIN users AS u ON u.id = s.creator_id

-- name: schedule
SELECT $schedule_columns$ FROM $schedule_tables$
 WHERE s.uuid = %(schedule)s::uuid OR (o.name = %(group_name)s AND s.name = %(name)s)

-- name: schedules
SELECT $schedule_columns$ FROM $schedule_tables$
 WHERE (o.name, s.name) > (%(after_group)s, %(after_name)s)
   AND (%(job)s::text IS NULL OR j.name = %(job)s)
   AND (%(group_name)s::text IS NULL OR o.name = %(group_name)s)
   AND EXISTS (SELECT FROM users AS w
                WHERE w.uuid = %(viewer)s
                  AND (w.is_admin OR EXISTS (SELECT FROM user_group_members AS m
                                              WHERE m.user_id = w.id AND m.user_group_id = o.id)))
 ORDER BY o.name, s.name LIMIT %(limit)s
