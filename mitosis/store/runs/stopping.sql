-- Cancelling and deleting runs. Each locks the run first and looks in a later statement.

-- name: lock
SELECT r.id, r.state FROM runs AS r WHERE r.uuid = %(run)s FOR UPDATE OF r

-- name: stop
-- A second cancel may also end the steps that clean up, or shorten the grace.
UPDATE runs AS r
   SET stopped_by = coalesce(r.stopped_by, 'cancel'),
       reason = CASE WHEN r.stopped_by IS NULL THEN %(reason)s ELSE r.reason END,
       skip_cleanup = r.skip_cleanup OR %(skip_cleanup)s, grace_seconds = coalesce(%(grace)s::float8, r.grace_seconds),
       due = true, revision = r.revision + 1
 WHERE r.id = %(run)s

-- name: mark
UPDATE runs SET deleting = true WHERE id = %(run)s

-- name: marked
SELECT r.uuid AS run_id FROM runs AS r WHERE r.deleting ORDER BY r.id LIMIT 100

-- name: own_groups
SELECT g.task_group FROM run_groups AS g
 WHERE g.run_id = %(run)s AND NOT g.standing AND EXISTS (SELECT FROM task_groups AS t WHERE t.uuid = g.task_group)

-- name: used_by
-- Runs that have taken over steps of this one.
SELECT DISTINCT r.uuid AS run_id FROM run_steps AS s JOIN runs AS r ON r.id = s.run_id
 WHERE s.taken_from = %(uuid)s

-- name: delete_ends
DELETE FROM step_ends AS e USING run_steps AS s WHERE s.run_id = %(run)s AND e.step_id = s.id

-- name: delete_run
DELETE FROM runs WHERE id = %(run)s
