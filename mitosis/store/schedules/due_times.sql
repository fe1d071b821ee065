-- The times of schedules that are due.

-- name: lock_times
-- Turns of one schedule are taken one after the other. Lock order: the schedule, its starts, the run.
SELECT s.id, s.jitter_seconds, s.catch_up_seconds, s.paused, clock_timestamp() AS now
  FROM schedules AS s WHERE s.uuid = %(schedule)s
   FOR NO KEY UPDATE

-- name: spans
SELECT p.id, p.timing::jsonb || jsonb_build_object('time_zone', p.time_zone, 'start_at', p.start_at, 'end_at', p.end_at)
           AS timing, p.from_at, p.to_at, nullif(p.next_at, 'infinity') AS next_at
  FROM schedule_spans AS p WHERE p.schedule_id = %(schedule)s
 ORDER BY p.id

-- name: timing
SELECT s.timing::jsonb || jsonb_build_object('time_zone', s.time_zone, 'start_at', s.start_at, 'end_at', s.end_at) AS timing
  FROM schedules AS s WHERE s.id = %(schedule)s

-- name: add_times
-- A time that has a start gets no second one, and takes no place. Where too many wait, it gets no run.
WITH held AS (
    SELECT count(*) AS n FROM schedule_starts AS x WHERE x.schedule_id = %(schedule)s AND x.ended_at IS NULL
), fresh AS (
    SELECT u.at, row_number() OVER (ORDER BY u.n) AS n
      FROM unnest(%(times)s::timestamptz[]) WITH ORDINALITY AS u (at, n)
     WHERE NOT EXISTS (SELECT FROM schedule_starts AS x
                        WHERE x.schedule_id = %(schedule)s AND x.nominal_time = u.at)
), added AS (
    INSERT INTO schedule_starts (schedule_id, nominal_time, kind, ended_at, reason)
    SELECT %(schedule)s, t.at, %(kind)s, CASE WHEN h.n + t.n > %(most)s THEN clock_timestamp() END,
           CASE WHEN h.n + t.n > %(most)s THEN %(reason)s END
      FROM held AS h, fresh AS t ORDER BY t.n
        ON CONFLICT (schedule_id, nominal_time) DO NOTHING
    RETURNING nominal_time
)
UPDATE schedules AS s
   SET late_seconds = greatest(extract(epoch FROM clock_timestamp() - (SELECT min(a.nominal_time) FROM added AS a)), 0)
 WHERE s.id = %(schedule)s AND EXISTS (SELECT FROM added) AND %(kind)s = 'time'

-- name: settle
UPDATE schedule_spans SET from_at = %(from_at)s, next_at = %(next_at)s::timestamptz WHERE id = %(span)s

-- name: end
DELETE FROM schedule_spans WHERE id = %(span)s

-- name: unreadable
UPDATE schedules SET refusal = %(reason)s, refused_at = now() WHERE id = %(schedule)s

-- name: forget
-- A run that has not ended still counts for the overlap policy.
DELETE FROM schedule_starts
 WHERE id IN (SELECT x.id FROM schedule_starts AS x
               WHERE x.schedule_id = %(schedule)s AND x.nominal_time < now() - interval '7 days'
                 AND x.ended_at < now() - interval '7 days'
                 AND NOT EXISTS (SELECT FROM runs AS r WHERE r.uuid = x.run_id AND r.ended_at IS NULL)
               ORDER BY x.nominal_time LIMIT 1000)
