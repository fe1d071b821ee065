-- Which worker services can execute a named task now (S004-30 to S004-36).

-- name: available
-- By priority, then by the last heartbeat. The first row is the one to choose. Only what decides is sorted: thousands
-- of services may support one task.
SELECT s.worker_id, s.uuid AS worker_uuid, s.metadata, r.connection_type, r.connection_details,
       a.configuration, a.configuration_version, a.priority, r.last_heartbeat_at
  FROM (SELECT a.service_id, a.named_task_id, r.id AS registration_id, a.priority, r.last_heartbeat_at
          FROM named_tasks AS n
          JOIN worker_named_tasks AS a ON a.named_task_id = n.id AND a.withdrawn_at IS NULL
          JOIN worker_registrations AS r ON r.service_id = a.service_id AND r.unregistered_at IS NULL
          JOIN worker_services AS s ON s.id = a.service_id
         CROSS JOIN (SELECT now() AS now) AS clock
         WHERE n.user_group_id = (SELECT g.id FROM user_groups AS g WHERE g.name = %(group_name)s)
           AND n.namespace = %(namespace)s AND n.name = %(name)s AND n.version = %(version)s
           AND $usable$
         ORDER BY a.priority DESC, r.last_heartbeat_at DESC, a.service_id
         LIMIT %(limit)s) AS best
  JOIN worker_named_tasks AS a ON a.service_id = best.service_id AND a.named_task_id = best.named_task_id
  JOIN worker_registrations AS r ON r.id = best.registration_id
  JOIN worker_services AS s ON s.id = best.service_id
 ORDER BY best.priority DESC, best.last_heartbeat_at DESC, best.service_id

-- name: unavailable
-- The services that support it but cannot execute it now.
SELECT s.worker_id, s.draining_since IS NOT NULL AS draining, CASE WHEN r.id IS NULL THEN 'disconnected' ELSE $health$ END AS health
  FROM named_tasks AS n
  JOIN worker_named_tasks AS a ON a.named_task_id = n.id AND a.withdrawn_at IS NULL
  JOIN worker_services AS s ON s.id = a.service_id
  LEFT JOIN worker_registrations AS r ON r.service_id = a.service_id AND r.unregistered_at IS NULL
 CROSS JOIN (SELECT now() AS now) AS clock
 WHERE n.user_group_id = (SELECT g.id FROM user_groups AS g WHERE g.name = %(group_name)s)
   AND n.namespace = %(namespace)s AND n.name = %(name)s AND n.version = %(version)s
 ORDER BY r.last_heartbeat_at DESC NULLS LAST, s.id
 LIMIT %(limit)s

-- name: nearest
-- Named tasks of the user group, those that share the most with the wanted one first.
SELECT n.namespace, n.name, n.version
  FROM named_tasks AS n
 WHERE n.user_group_id = (SELECT g.id FROM user_groups AS g WHERE g.name = %(group_name)s)
   AND (n.namespace, n.name, n.version) <> (%(namespace)s, %(name)s, %(version)s)
   AND EXISTS (SELECT FROM worker_named_tasks AS a WHERE a.named_task_id = n.id AND a.withdrawn_at IS NULL)
 ORDER BY n.name = %(name)s DESC, n.namespace = %(namespace)s DESC, n.id DESC
 LIMIT %(limit)s
