-- The named tasks of submissions into groups of worker services.

-- name: add_named_tasks
-- A named task that no service supports yet is a gap, which is shown. In the order of the unique key, so that two
-- submissions do not deadlock. Only for a group of worker services.
INSERT INTO named_tasks (user_group_id, namespace, name, version)
SELECT g.user_group_id, t.namespace, t.name, t.version
  FROM task_groups AS g
 CROSS JOIN unnest(%(namespaces)s::text[], %(names)s::text[], %(versions)s::text[]) AS t (namespace, name, version)
 WHERE g.uuid = %(group)s AND g.kind = 'service'
   AND NOT EXISTS (SELECT FROM named_tasks AS n
                    WHERE n.user_group_id = g.user_group_id AND n.namespace = t.namespace
                      AND n.name = t.name AND n.version = t.version)
 ORDER BY 1, 2, 3, 4
ON CONFLICT DO NOTHING

-- name: named_tasks
SELECT n.id, n.namespace, n.name, n.version
  FROM task_groups AS g
  JOIN named_tasks AS n ON n.user_group_id = g.user_group_id
  JOIN unnest(%(namespaces)s::text[], %(names)s::text[], %(versions)s::text[]) AS t (namespace, name, version)
    ON n.namespace = t.namespace AND n.name = t.name AND n.version = t.version
 WHERE g.uuid = %(group)s AND g.kind = 'service'

-- name: kind
SELECT g.kind, u.name AS group_name
  FROM task_groups AS g JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE g.uuid = %(group)s

-- name: supported_versions
-- Of named tasks, those that a worker service supports; it may be away for the moment.
SELECT n.namespace, n.name, n.version
  FROM task_groups AS g
  JOIN named_tasks AS n ON n.user_group_id = g.user_group_id
  JOIN unnest(%(namespaces)s::text[], %(names)s::text[]) AS t (namespace, name)
    ON n.namespace = t.namespace AND n.name = t.name
 WHERE g.uuid = %(group)s
   AND EXISTS (SELECT FROM worker_named_tasks AS a WHERE a.named_task_id = n.id AND a.withdrawn_at IS NULL)

-- name: with_worker
-- Of exact named tasks, those that a worker service can execute now.
SELECT DISTINCT n.namespace, n.name, n.version
  FROM task_groups AS g
  JOIN named_tasks AS n ON n.user_group_id = g.user_group_id
  JOIN unnest(%(namespaces)s::text[], %(names)s::text[], %(versions)s::text[]) AS t (namespace, name, version)
    ON n.namespace = t.namespace AND n.name = t.name AND n.version = t.version
  JOIN worker_named_tasks AS a ON a.named_task_id = n.id AND a.withdrawn_at IS NULL
  JOIN worker_registrations AS r ON r.service_id = a.service_id AND r.unregistered_at IS NULL
  JOIN worker_services AS s ON s.id = a.service_id
 CROSS JOIN (SELECT now() AS now) AS clock
 WHERE g.uuid = %(group)s AND $usable$

-- name: names_of_tasks
-- The named tasks of submitted tasks.
SELECT t.id, t.spec ->> 'named_task' AS named_task FROM task AS t WHERE t.id = ANY(%(ids)s::bigint[])
