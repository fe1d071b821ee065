-- Deleting task groups (protocol P8).

-- name: take
-- The next deleted group of which rows are left; another process may work on another one.
SELECT d.group_id, d.step, d.position FROM deleted_groups AS d
 WHERE d.finished_at IS NULL ORDER BY d.group_id LIMIT 1
   FOR UPDATE SKIP LOCKED

-- name: left_over
-- A settled group that was to be deleted: the version before this one settles without deleting.
SELECT g.uuid FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE v.delete_when_settled AND v.settled_at IS NOT NULL ORDER BY v.group_id LIMIT 1

-- name: mark_for_deletion
UPDATE group_live SET delete_when_settled = true WHERE group_id = %(group_number)s

-- name: advance
UPDATE deleted_groups
   SET step = %(step)s, position = %(position)s, finished_at = CASE WHEN %(finished)s THEN now() END
 WHERE group_id = %(group_number)s

-- Each of the next statements deletes one chunk from the position on, and answers how far it came; NULL:
-- nothing was left. The position saves reading the index entries of what the chunks before have deleted.

-- name: delete_failures
WITH picked AS MATERIALIZED (
    SELECT id, task_id FROM task_failures
     WHERE group_id = %(group_number)s AND task_id >= %(position)s ORDER BY task_id LIMIT %(limit)s
), gone AS (
    DELETE FROM task_failures WHERE id = ANY(ARRAY(SELECT id FROM picked))
)
SELECT max(task_id) AS position FROM picked

-- name: delete_results
WITH picked AS MATERIALIZED (
    SELECT task_id, seq FROM task_result
     WHERE group_id = %(group_number)s AND seq > %(position)s ORDER BY seq LIMIT %(limit)s
), gone AS (
    DELETE FROM task_result WHERE task_id = ANY(ARRAY(SELECT task_id FROM picked))
)
SELECT max(seq) AS position FROM picked

-- name: delete_tasks
WITH picked AS MATERIALIZED (
    SELECT id FROM task
     WHERE group_id = %(group_number)s AND id > %(position)s ORDER BY id LIMIT %(limit)s
), edges AS (
    DELETE FROM task_edges WHERE child_group_id = %(group_number)s AND child = ANY(ARRAY(SELECT id FROM picked))
), executed AS (
    DELETE FROM service_claims WHERE task_id = ANY(ARRAY(SELECT id FROM picked))
), repeated AS (
    DELETE FROM task_retries WHERE task_id = ANY(ARRAY(SELECT id FROM picked))
), gone AS (
    DELETE FROM task WHERE id = ANY(ARRAY(SELECT id FROM picked))
)
SELECT max(id) AS position FROM picked

-- name: delete_submissions
-- Few at once: a submission names up to 10,000 tasks.
WITH picked AS MATERIALIZED (
    SELECT idempotency_key, part FROM submission
     WHERE group_id = %(group_number)s ORDER BY idempotency_key, part LIMIT %(limit)s / 50 + 1
), gone AS (
    DELETE FROM submission AS s USING picked AS p
     WHERE s.group_id = %(group_number)s AND s.idempotency_key = p.idempotency_key AND s.part = p.part
    RETURNING s.part
)
SELECT CASE WHEN EXISTS (SELECT FROM gone) THEN 0 END AS position

-- name: delete_parents
-- What the tasks of the group still waited for when it was deleted.
WITH picked AS MATERIALIZED (
    SELECT parent FROM task_parents
     WHERE child_group_id = %(group_number)s AND parent > %(position)s ORDER BY parent LIMIT %(limit)s
), gone AS (
    DELETE FROM task_parents WHERE child_group_id = %(group_number)s AND parent = ANY(ARRAY(SELECT parent FROM picked))
)
SELECT max(parent) AS position FROM picked

-- name: delete_retries
WITH gone AS (
    DELETE FROM task_retries WHERE task_id = ANY(ARRAY(
        SELECT task_id FROM task_retries WHERE group_id = %(group_number)s LIMIT %(limit)s))
    RETURNING task_id
)
SELECT CASE WHEN EXISTS (SELECT FROM gone) THEN 0 END AS position
