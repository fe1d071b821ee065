-- Runs that users ask of a schedule beside its times.

-- name: now
SELECT date_trunc('second', now()) AS at

-- name: keep
-- No start of the schedule is carried out until the commit.
SELECT s.id FROM schedules AS s WHERE s.uuid = %(schedule)s FOR NO KEY UPDATE

-- name: ask
-- A start that waits, or has no run, waits from now on in the way that is asked for.
INSERT INTO schedule_starts AS x (schedule_id, nominal_time, kind, overlap)
SELECT %(schedule)s, t.at, %(kind)s, %(overlap)s
  FROM unnest(%(times)s::timestamptz[]) WITH ORDINALITY AS t (at, n) ORDER BY t.n
    ON CONFLICT (schedule_id, nominal_time) DO UPDATE
   SET id = DEFAULT, kind = excluded.kind, overlap = excluded.overlap, ended_at = NULL, run_id = NULL,
       reason = NULL, failures = 0
 WHERE NOT EXISTS (SELECT FROM runs AS r WHERE r.schedule_id = x.schedule_id AND r.nominal_time = x.nominal_time)

-- name: others_waiting
-- Beside those that are asked for.
SELECT count(*) AS waiting FROM schedule_starts AS x
 WHERE x.schedule_id = %(schedule)s AND x.ended_at IS NULL AND x.nominal_time <> ALL(%(times)s::timestamptz[])

-- name: nominal_times
-- Those of a range that have a run.
SELECT r.nominal_time AS at
  FROM runs AS r JOIN schedules AS s ON s.id = r.schedule_id
 WHERE s.uuid = %(schedule)s AND r.nominal_time BETWEEN %(from_at)s AND %(to_at)s
