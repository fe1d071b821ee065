-- Submitting ended tasks again.

-- name: lock_retries
-- Allows one retry of a group at a time, until the commit, so that the next one sees its rows; the group
-- cannot be deleted before.
SELECT g.id, pg_advisory_xact_lock(hashtext('mitosis_retry'), hashint8(s.id))
  FROM task_groups AS g, task_groups AS s WHERE g.uuid = %(into)s AND s.uuid = %(group)s
   FOR KEY SHARE OF s

-- name: to_retry
-- The next ended tasks of a group. Tasks submitted by another retry, into any group, are left out; those that
-- this retry has submitted come with their new task. What was cancelled because a task failed is chosen together
-- with that task; it has a higher number.
SELECT r.task_id, t.spec::text AS spec, a.new_task_id
  FROM task_result AS r
  JOIN task_groups AS g ON g.id = r.group_id AND g.uuid = %(group)s
  JOIN task AS t ON t.id = r.task_id
  LEFT JOIN (task_retries AS a JOIN task_groups AS x ON x.id = a.group_id) ON a.task_id = r.task_id
 WHERE r.task_id > %(after)s
   AND (r.state = ANY(%(states)s::text[]) AND (%(reasons)s::text[] = '{}' OR r.kind = ANY(%(reasons)s::text[]))
        OR r.kind = 'dependency_failed' AND EXISTS (
           SELECT FROM task_result AS c LEFT JOIN task_retries AS y ON y.task_id = c.task_id
            WHERE c.task_id = (r.detail ->> 'cause')::bigint
              AND (y.task_id IS NOT NULL
                   OR c.group_id = r.group_id AND c.state = ANY(%(states)s::text[])
                      AND (%(reasons)s::text[] = '{}' OR c.kind = ANY(%(reasons)s::text[])))))
   AND (a.task_id IS NULL OR (a.group_id = %(into_number)s AND a.idempotency_key = %(key)s))
 ORDER BY r.task_id LIMIT %(limit)s

-- name: parents_to_retry
-- What the new tasks depend on: the tasks that replace their parents, and parents that have not succeeded. Both
-- only if they are in the user group of the task group that receives them.
SELECT e.child, e.parent, coalesce(a.new_task_id, e.parent) AS present
  FROM task_edges AS e
  JOIN task_groups AS s ON s.id = e.child_group_id AND s.uuid = %(group)s
  JOIN task AS t ON t.id = e.parent
  LEFT JOIN task_result AS r ON r.task_id = e.parent
  LEFT JOIN task_retries AS a ON a.task_id = e.parent
  JOIN task_groups AS g ON g.id = coalesce(a.group_id, t.group_id)
   AND g.user_group_id = (SELECT i.user_group_id FROM task_groups AS i WHERE i.id = %(into_number)s)
 WHERE e.child = ANY(%(old)s::bigint[]) AND (a.task_id IS NOT NULL OR r.state IS DISTINCT FROM 'succeeded')
 ORDER BY e.child, e.parent

-- name: note_retries
-- The row of a retry into a group that has been deleted may still be there.
INSERT INTO task_retries (group_id, task_id, new_task_id, idempotency_key)
SELECT %(into_number)s, t.old, t.new, %(key)s
  FROM unnest(%(old)s::bigint[], %(new)s::bigint[]) AS t (old, new)
    ON CONFLICT (task_id) DO UPDATE
   SET group_id = excluded.group_id, new_task_id = excluded.new_task_id, idempotency_key = excluded.idempotency_key
