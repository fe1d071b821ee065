-- Which runs have something to do, and the tasks of a run that are to be cancelled.

-- name: due_runs
SELECT r.id FROM runs AS r WHERE r.ended_at IS NULL AND ($due$) ORDER BY r.id

-- name: runs_of_steps
SELECT DISTINCT s.run_id AS id FROM run_steps AS s WHERE s.id = ANY(%(steps)s::bigint[])

-- name: look
SELECT r.revision, coalesce(($due$), false) AS due FROM runs AS r WHERE r.id = %(run)s AND r.ended_at IS NULL

-- name: due
-- What a run that has not ended waits for: work of its own, ends of tasks, a time, or its turn.
r.due
OR EXISTS (SELECT FROM run_steps AS s JOIN step_ends AS e ON e.step_id = s.id WHERE s.run_id = r.id)
OR EXISTS (SELECT FROM run_steps AS s
            WHERE s.run_id = r.id AND s.state = 'running'
              AND (s.stopped_by IS NOT NULL OR s.deadline <= clock_timestamp()))
OR (r.stopped_by IS NULL AND r.deadline <= clock_timestamp())
OR (r.state = 'pending' AND (r.stopped_by IS NOT NULL OR ($turn$)))

-- name: next_pending
SELECT p.id FROM runs AS r JOIN runs AS p
    ON p.user_group_id = r.user_group_id AND p.job_name = r.job_name AND p.ended_at IS NULL AND p.state = 'pending'
 WHERE r.id = %(run)s AND p.id <> r.id ORDER BY p.id LIMIT 1

-- name: ends_left
SELECT EXISTS (SELECT FROM run_steps AS s JOIN step_ends AS e ON e.step_id = s.id WHERE s.run_id = %(run)s) AS left_over

-- name: tasks_to_cancel
-- Open tasks of a step whose rest is being cancelled, within the range of its numbers: the first ones are gone
-- after each chunk.
SELECT x.task_group, x.reason, x.grace_seconds, x.task_ids
  FROM (SELECT s.task_group, s.reason, r.grace_seconds, ARRAY(
                   SELECT o.id FROM open_task AS o
                    WHERE o.group_id = g.id AND o.step_id = s.id
                      AND o.id >= (SELECT min(p.task_ids[1]) FROM step_tasks AS p WHERE p.step_id = s.id)
                      -- Those that a rerun has taken over are older, wherever they stand.
                      AND (s.taken > 0 OR o.id <= (SELECT max(p.task_ids[cardinality(p.task_ids)]) FROM step_tasks AS p
                                    WHERE p.step_id = s.id))
                    ORDER BY o.id LIMIT %(limit)s) AS task_ids
          FROM runs AS r JOIN run_steps AS s ON s.run_id = r.id JOIN task_groups AS g ON g.uuid = s.task_group
         WHERE r.id = %(run)s AND s.state = 'running' AND s.stopped_by IS NOT NULL
           AND s.created > s.succeeded + s.failed + s.cancelled) AS x
 WHERE cardinality(x.task_ids) > 0 LIMIT 1
