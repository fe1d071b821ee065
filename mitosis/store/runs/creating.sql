-- The tasks of steps: created in chunks, found by index, with their results.

-- name: add_tasks
INSERT INTO step_tasks (step_id, start, task_ids) VALUES (%(step)s, %(start)s, %(ids)s::bigint[])

-- name: why_ended
SELECT v.reason FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id
 WHERE g.uuid = %(group)s AND v.reason IS NOT NULL
   AND (v.state = 'cancelled' OR v.kill_running OR v.setup_failed)

-- name: tasks_between
-- The tasks of a step with these indexes, in their order. No row has more than a chunk.
SELECT t.id
  FROM step_tasks AS p CROSS JOIN LATERAL unnest(p.task_ids) WITH ORDINALITY AS t (id, n)
 WHERE p.step_id = %(step)s AND p.start > %(start)s - %(chunk)s AND p.start < %(stop)s
   AND p.start + t.n - 1 >= %(start)s AND p.start + t.n - 1 < %(stop)s
 ORDER BY p.start + t.n

-- name: kept
-- The tasks with these indexes of a step of an earlier run that have succeeded.
SELECT p.start + t.n - 1 AS index, t.id
  FROM step_tasks AS p CROSS JOIN LATERAL unnest(p.task_ids) WITH ORDINALITY AS t (id, n)
  JOIN task_result AS r ON r.task_id = t.id AND r.state = 'succeeded'
 WHERE p.step_id = %(step)s AND p.start > %(start)s - %(chunk)s AND p.start < %(stop)s
   AND p.start + t.n - 1 >= %(start)s AND p.start + t.n - 1 < %(stop)s

-- name: size_of_results
SELECT coalesce(sum(octet_length((r.detail -> 'result')::text)), 0)::bigint AS bytes
  FROM step_tasks AS p CROSS JOIN LATERAL unnest(p.task_ids) AS t (id)
  JOIN task_result AS r ON r.task_id = t.id AND r.state = 'succeeded'
 WHERE p.step_id = %(step)s

-- name: results
SELECT r.detail -> 'result' AS value, r.task_id IS NOT NULL AS found
  FROM step_tasks AS p CROSS JOIN LATERAL unnest(p.task_ids) WITH ORDINALITY AS t (id, n)
  LEFT JOIN task_result AS r ON r.task_id = t.id AND r.state = 'succeeded'
 WHERE p.step_id = %(step)s ORDER BY p.start + t.n
