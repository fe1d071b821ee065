-- Changes of hosts by users.

-- name: lock_names
-- One rename at a time, so that two cannot take one name.
SELECT pg_advisory_xact_lock(hashtext('mitosis.manager_names'))

-- name: same_name
SELECT o.id FROM managers AS o
 WHERE o.name = %(name)s AND o.id <> %(manager_number)s AND o.deleted_at IS NULL
   AND EXISTS (SELECT FROM user_group_managers AS r
                 JOIN user_group_managers AS own ON own.user_group_id = r.user_group_id
                WHERE r.manager_id = o.id AND own.manager_id = %(manager_number)s)
 LIMIT 1

-- name: change_manager
UPDATE managers
   SET name = coalesce(%(name)s::text, name),
       labels = coalesce(%(labels)s::text[], labels), updated_at = now()
 WHERE id = %(manager_number)s

-- name: leased_group
SELECT g.name FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id
 WHERE l.manager_id = %(manager_number)s AND l.kind = 'manager' AND l.state <> 'ended'

-- name: owed_groups
SELECT coalesce(g.name, e.task_group_name, 'a deleted task group') AS name
  FROM environments AS e LEFT JOIN task_groups AS g ON g.id = e.group_id
 WHERE e.manager_id = %(manager_number)s AND e.state <> 'gone'
 ORDER BY e.changed_at

-- name: delete_manager
-- The row stays while results name the host (C-34); nothing lists it, and no token of it is valid.
WITH gone AS (
    UPDATE managers SET deleted_at = now(), token_version = token_version + 1
     WHERE id = %(manager_number)s AND deleted_at IS NULL
    RETURNING id
), of_user_groups AS (
    DELETE FROM user_group_managers WHERE manager_id IN (SELECT id FROM gone)
), of_task_groups AS (
    DELETE FROM task_group_managers WHERE manager_id IN (SELECT id FROM gone)
)
DELETE FROM host_failures WHERE manager_id IN (SELECT id FROM gone)
