-- Facts about the task group of tasks.

-- name: group_number
SELECT id FROM task_groups WHERE uuid = %(group)s

-- name: progress
SELECT g.id AS number, v.state, v.unfinished, v.total - v.unfinished AS ended
  FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id WHERE g.uuid = %(group)s

-- name: watch
UPDATE group_live SET watched = true WHERE group_id = %(group_number)s AND NOT watched
