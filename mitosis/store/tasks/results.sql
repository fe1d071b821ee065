-- The results of a group, for readers that follow it.

-- name: results_after
-- The next results in the order in which they were recorded.
SELECT r.task_id AS id, r.seq FROM task_result AS r
 WHERE r.group_id = %(group_number)s AND r.seq > %(after)s
 ORDER BY r.seq LIMIT %(limit)s
