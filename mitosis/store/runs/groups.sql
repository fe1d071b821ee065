-- The task groups of runs.

-- name: standing
-- A task group that exists, with the role of the run's creator in its user group.
SELECT g.uuid, g.kind, CASE WHEN u.is_admin THEN 'admin' ELSE m.role END AS role
  FROM task_groups AS g
  JOIN user_groups AS o ON o.id = g.user_group_id
  JOIN users AS u ON u.uuid = %(creator)s
  LEFT JOIN user_group_members AS m ON m.user_group_id = o.id AND m.user_id = u.id
 WHERE o.name = %(group_name)s AND g.name = %(name)s

-- name: add_group
INSERT INTO run_groups (run_id, name, kind, task_group, standing)
VALUES (%(run)s, %(name)s, %(kind)s, %(task_group)s, %(standing)s)
