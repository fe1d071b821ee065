-- Starts of runs by schedules. Lock order: the schedule, its starts, the run.

-- name: due_schedule
SELECT s.id, s.uuid AS schedule_id, s.name, o.name AS group_name, j.uuid AS job_id, s.version, s.parameters, s.labels,
       s.time_zone, u.uuid AS creator_id, u.username AS creator
  FROM schedules AS s
  JOIN user_groups AS o ON o.id = s.user_group_id
  JOIN jobs AS j ON j.id = s.job_id
  JOIN users AS u ON u.id = s.creator_id
 WHERE s.uuid = %(schedule)s

-- name: lock
-- Decisions about one schedule are made one after the other.
SELECT FROM schedules WHERE id = %(schedule)s FOR NO KEY UPDATE

-- name: waiting
-- In the order of their ids. First those that others do not hold up; then the newest ones, which replace others,
-- and the oldest one; then those that may be left out. While the schedule is paused, only starts by hand.
-- Each part is computed once, as there may be 10,000.
WITH w AS MATERIALIZED (
    SELECT x.id, x.nominal_time,
           coalesce(x.overlap, (SELECT s.overlap FROM schedules AS s WHERE s.id = %(schedule)s)) AS overlap
      FROM schedule_starts AS x
     WHERE x.schedule_id = %(schedule)s AND x.ended_at IS NULL
       AND (x.kind IN ('trigger', 'temporal') OR NOT (SELECT s.paused FROM schedules AS s WHERE s.id = %(schedule)s))
), ends AS MATERIALIZED (
    SELECT min(w.id) AS oldest, max(w.id) FILTER (WHERE w.overlap IN ('cancel_other', 'terminate_other')) AS replacing,
           max(w.id) FILTER (WHERE w.overlap = 'buffer_one') AS buffered
      FROM w
), chosen AS (
    SELECT w.id, w.nominal_time, w.overlap FROM w, ends AS e
     ORDER BY w.overlap = 'allow_all' DESC, w.id IN (e.oldest, e.replacing, e.buffered) IS TRUE DESC,
              w.overlap IN ('cancel_other', 'terminate_other') DESC, w.overlap <> 'buffer_all' DESC, w.id
     LIMIT %(limit)s
)
SELECT c.id, c.nominal_time, c.overlap FROM chosen AS c ORDER BY c.id

-- name: active
-- A run that was started beside others hinders no other.
SELECT r.uuid AS run_id, r.stopped_by IS NOT NULL AS stopped, r.skip_cleanup AS at_once
  FROM runs AS r
 WHERE r.schedule_id = %(schedule)s AND r.ended_at IS NULL
   AND NOT EXISTS (SELECT FROM schedule_starts AS x
                    WHERE x.schedule_id = r.schedule_id AND x.nominal_time = r.nominal_time AND x.overlap = 'allow_all')
 ORDER BY r.id

-- name: skip
UPDATE schedule_starts AS x SET ended_at = clock_timestamp(), reason = t.reason
  FROM unnest(%(starts)s::bigint[], %(reasons)s::text[]) AS t (id, reason)
 WHERE x.id = t.id AND x.ended_at IS NULL

-- name: started
WITH marked AS (
    UPDATE schedule_starts SET ended_at = clock_timestamp(), run_id = %(run)s, overlap = %(overlap)s
     WHERE id = %(start)s
)
UPDATE schedules SET refusal = NULL, refused_at = NULL WHERE id = %(schedule)s AND refusal IS NOT NULL

-- name: note_refused
WITH refused AS (
    UPDATE schedule_starts
       SET failures = failures + 1, ended_at = CASE WHEN failures + 1 >= %(most)s THEN clock_timestamp() END,
           reason = CASE WHEN failures + 1 >= %(most)s THEN %(reason)s END
     WHERE id = %(start)s AND ended_at IS NULL AND %(lasting)s
)
UPDATE schedules SET refusal = %(reason)s, refused_at = now() WHERE id = %(schedule)s

-- name: start
SELECT x.run_id, x.reason, s.refusal
  FROM schedule_starts AS x JOIN schedules AS s ON s.id = x.schedule_id
 WHERE x.schedule_id = %(schedule)s AND x.nominal_time = %(nominal_time)s
UNION ALL
SELECT r.uuid, NULL, NULL FROM runs AS r WHERE r.schedule_id = %(schedule)s AND r.nominal_time = %(nominal_time)s
 LIMIT 1
