-- What submitted tasks depend on. Lock order: group_live of the child and of all parents by id, task rows by id.

-- name: child_group
SELECT id AS number, user_group_id FROM task_groups WHERE uuid = %(group)s

-- name: earlier_parts
SELECT s.part, s.task_ids FROM submission AS s
 WHERE s.group_id = %(group_number)s AND s.idempotency_key = %(key)s AND s.part = ANY(%(parts)s::int[])

-- name: groups_of_parents
-- Of tasks that a task of this user group may depend on.
SELECT t.id, t.group_id FROM task AS t JOIN task_groups AS g ON g.id = t.group_id
 WHERE t.id = ANY(%(ids)s::bigint[]) AND g.user_group_id = %(user_group)s

-- name: lock_groups
-- From here until the commit no parent ends and no child is resolved. The next statement reads the rows after it.
SELECT v.group_id FROM group_live AS v WHERE v.group_id = ANY(%(groups)s::bigint[])
 ORDER BY v.group_id
   FOR NO KEY UPDATE OF v

-- name: states_of_parents
-- unresolved: it has ended, and earlier children of it in this group still wait for it.
SELECT t.id, (SELECT r.state FROM task_result AS r WHERE r.task_id = t.id) AS state,
       EXISTS (SELECT FROM task_parents AS p
                WHERE p.parent = t.id AND p.child_group_id = %(group_number)s AND p.outcome IS NOT NULL) AS unresolved
  FROM task AS t WHERE t.id = ANY(%(ids)s::bigint[])

-- name: mark_parents
-- Claims lock rows as well, but wait for none.
WITH locked AS MATERIALIZED (
    SELECT o.id FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.id = ANY(%(ids)s::bigint[]) AND o.has_children IS NOT TRUE
     ORDER BY o.id
       FOR UPDATE OF o
)
UPDATE open_task AS o SET has_children = true
 WHERE o.group_id = %(group_number)s AND o.id = ANY(ARRAY(SELECT id FROM locked))

-- name: queue_dependent
-- As submit_queue, for tasks that may depend on others or belong to a step. The caller has left out the tasks whose deduplication key is taken.
INSERT INTO open_task (group_id, id, priority, state, max_attempts, retry_delay_seconds, retry_exit_codes, dedup_key,
                       named_task_id, waits_for, has_children, step_id)
SELECT %(group_number)s, t.id, t.priority, CASE WHEN t.waits_for > 0 THEN 2 ELSE 0 END, t.max_attempts, t.delay,
       t.exit_codes::int[], t.dedup_key, t.named_task_id, nullif(t.waits_for, 0),
       CASE WHEN t.id = ANY(%(parents)s::bigint[]) THEN true END, %(step)s::bigint
  FROM unnest(%(ids)s::bigint[], %(priorities)s::int[], %(max_attempts)s::smallint[],
              %(delays)s::real[], %(exit_codes)b::text[], %(dedup_keys)b::text[], %(named_tasks)s::bigint[],
              %(waits_for)s::int[])
       AS t (id, priority, max_attempts, delay, exit_codes, dedup_key, named_task_id, waits_for)
 WHERE t.id = ANY(%(queued)s::bigint[])
 ORDER BY t.id

-- name: add_edges
-- A parent with an outcome did not succeed: its new children are resolved after this transaction.
WITH edges AS (
    INSERT INTO task_edges (parent, child, child_group_id)
    SELECT e.parent, e.child, %(group_number)s
      FROM unnest(%(parents)s::bigint[], %(children)s::bigint[]) AS e (parent, child)
), waited_for AS (
    INSERT INTO task_parents (parent, child_group_id, outcome)
    SELECT p.parent, %(group_number)s, p.outcome
      FROM unnest(%(waited_for)s::bigint[], %(outcomes)b::text[]) AS p (parent, outcome)
        ON CONFLICT (parent, child_group_id) DO NOTHING
    RETURNING outcome
)
SELECT count(pg_notify('mitosis_wake', %(group_number)s::bigint || '>')) AS notified
  FROM waited_for WHERE outcome IS NOT NULL
