-- What explain.py adds to the facts of decisions, for one host.

-- name: host
SELECT m.id AS number, m.name FROM managers AS m WHERE m.uuid = %(manager)s AND m.deleted_at IS NULL

-- name: ids_of_groups
SELECT g.id AS number, g.uuid FROM task_groups AS g WHERE g.id = ANY(%(groups)s::bigint[])

-- name: is_large
SELECT count(*) > %(most)s AS large
  FROM (SELECT FROM managers AS m WHERE m.deleted_at IS NULL LIMIT %(most)s + 1) AS found
