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
SELECT g.kind FROM task_groups AS g WHERE g.uuid = %(group)s
