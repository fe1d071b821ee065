-- Ending a run without its definition. Each statement follows the lock of the run.

-- name: lock_unended
SELECT r.id, r.schedule_id FROM runs AS r WHERE r.id = %(run)s AND r.ended_at IS NULL FOR UPDATE OF r

-- name: stop_run
UPDATE runs AS r
   SET stopped_by = coalesce(r.stopped_by, 'error'), reason = coalesce(r.reason, %(reason)s), due = false,
       revision = r.revision + 1
 WHERE r.id = %(run)s

-- name: stop_steps
UPDATE run_steps AS s SET stopped_by = coalesce(s.stopped_by, 'error'), reason = coalesce(s.reason, %(reason)s)
 WHERE s.run_id = %(run)s AND s.state = 'running'

-- name: groups_to_close
SELECT g.task_group FROM run_groups AS g WHERE g.run_id = %(run)s AND NOT g.standing AND NOT g.closed

-- name: groups_closed
UPDATE run_groups SET closed = true WHERE run_id = %(run)s AND NOT standing

-- name: end_steps
UPDATE run_steps AS s SET state = CASE s.state WHEN 'running' THEN 'failed' ELSE 'cancelled' END, ended_at = now()
 WHERE s.run_id = %(run)s AND s.ended_at IS NULL

-- name: end_run
UPDATE runs AS r SET state = 'failed', ended_at = now(), revision = r.revision + 1 WHERE r.id = %(run)s
