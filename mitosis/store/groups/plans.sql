-- Dry runs of task groups: hosts to list, and what was measured with task groups like the planned one.

-- name: hosts_of_plan
-- Hosts with a role in the user group, and named ones, in contact or not.
SELECT m.id AS number FROM managers AS m
 WHERE m.deleted_at IS NULL
   AND m.id IN (SELECT r.manager_id FROM user_group_managers AS r
                  JOIN task_groups AS g ON g.user_group_id = r.user_group_id
                 WHERE g.id = %(group_number)s AND r.role IN ('write', 'admin')
                 UNION SELECT t.manager_id FROM task_group_managers AS t
                 WHERE t.task_group_id = %(group_number)s AND t.assignment_method = 'user_specified')
 ORDER BY m.id

-- name: setups
-- Mean durations on single hosts, of task groups of the user group with the same hook of the kind.
SELECT d.mean_seconds, d.runs
  FROM task_groups AS p
  JOIN task_groups AS g ON g.user_group_id = p.user_group_id
   AND g.environment_setup_hook IS NOT DISTINCT FROM p.environment_setup_hook
  JOIN environment_durations AS d ON d.group_id = g.id AND d.kind = 'setup' AND d.manager_id IS NOT NULL
 WHERE p.id = %(group_number)s
 ORDER BY g.id DESC LIMIT 1000

-- name: teardowns
SELECT d.mean_seconds, d.runs
  FROM task_groups AS p
  JOIN task_groups AS g ON g.user_group_id = p.user_group_id
   AND g.environment_teardown_hook IS NOT DISTINCT FROM p.environment_teardown_hook
  JOIN environment_durations AS d ON d.group_id = g.id AND d.kind = 'teardown' AND d.manager_id IS NOT NULL
 WHERE p.id = %(group_number)s
 ORDER BY g.id DESC LIMIT 1000

-- name: tasks
-- Mean durations of the tasks of single task groups with the same setup hook.
SELECT v.run_seconds / v.runs AS mean_seconds, v.runs
  FROM task_groups AS p
  JOIN task_groups AS g ON g.user_group_id = p.user_group_id
   AND g.environment_setup_hook IS NOT DISTINCT FROM p.environment_setup_hook
  JOIN group_live AS v ON v.group_id = g.id AND v.runs > 0
 WHERE p.id = %(group_number)s
 ORDER BY g.id DESC LIMIT 1000
