-- Carrying on runs (protocol P15). Lock order: the run, group_live by number, task rows. Ends of tasks lock no run.

-- name: lock_job
-- Runs of one job take their turns one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('mitosis runs ' || %(job_name)s::text, %(user_group)s::bigint))

-- name: is_turn
SELECT ($turn$) AS due FROM runs AS r WHERE r.id = %(run)s

-- name: save_run
UPDATE runs AS r
   SET state = %(state)s, stopped_by = %(stopped_by)s, reason = %(reason)s, due = %(due)s,
       revision = r.revision + %(changed)s::int,
       started_at = CASE WHEN %(started)s THEN coalesce(r.started_at, now()) ELSE r.started_at END,
       ended_at = CASE WHEN %(ended)s THEN now() END,
       deadline = CASE WHEN %(begins)s THEN now() + make_interval(secs => %(timeout)s::float8) ELSE r.deadline END
 WHERE r.id = %(run)s

-- name: closed
UPDATE run_groups SET closed = true WHERE run_id = %(run)s AND name = %(name)s AND kind = %(kind)s
