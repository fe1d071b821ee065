-- Worker services and named tasks as users see them.

-- name: page_of_workers
-- Of the user groups of the viewer, by id, with the last registration of each.
SELECT s.worker_id, s.uuid AS worker_uuid, s.tags, s.labels, s.metadata, s.slots, s.silence_seconds,
       s.draining_since, s.drain_reason, s.created_at, r.connection_type, r.connection_details, r.registered_at,
       r.last_heartbeat_at, r.unregistered_at, $health$ AS health,
       (SELECT array_agg(g.name ORDER BY g.name) FROM user_group_workers AS w
          JOIN user_groups AS g ON g.id = w.user_group_id WHERE w.service_id = s.id) AS groups,
       (SELECT count(*) FROM worker_named_tasks AS a
         WHERE a.service_id = s.id AND a.withdrawn_at IS NULL) AS task_count
  FROM worker_services AS s
 CROSS JOIN (SELECT now() AS now) AS clock
 CROSS JOIN LATERAL (SELECT * FROM worker_registrations AS o
                      WHERE o.service_id = s.id ORDER BY o.id DESC LIMIT 1) AS r
 WHERE (%(worker_id)s::text IS NULL OR s.worker_id = %(worker_id)s)
   AND s.worker_id > %(after)s
   AND (EXISTS (SELECT FROM users AS u WHERE u.uuid = %(viewer)s AND u.is_admin)
        OR EXISTS (SELECT FROM user_group_workers AS w
                     JOIN user_group_members AS m ON m.user_group_id = w.user_group_id
                     JOIN users AS u ON u.id = m.user_id
                    WHERE w.service_id = s.id AND u.uuid = %(viewer)s))
 ORDER BY s.worker_id LIMIT %(limit)s

-- name: tasks_of_worker
-- With configurations only in user groups where the viewer has a role.
SELECT g.name AS group_name, n.namespace, n.name, n.version, a.configuration, a.configuration_version,
       a.priority, a.max_concurrent
  FROM worker_named_tasks AS a
  JOIN named_tasks AS n ON n.id = a.named_task_id
  JOIN user_groups AS g ON g.id = n.user_group_id
 WHERE a.service_id = (SELECT s.id FROM worker_services AS s WHERE s.uuid = %(worker)s) AND a.withdrawn_at IS NULL
   AND $viewed$
 ORDER BY g.name, n.namespace, n.name, n.version

-- name: viewed
-- An expression over named_tasks AS n that replaces $viewed$.
(EXISTS (SELECT FROM users AS u WHERE u.uuid = %(viewer)s AND u.is_admin)
 OR n.user_group_id IN (SELECT m.user_group_id FROM user_group_members AS m
                          JOIN users AS u ON u.id = m.user_id WHERE u.uuid = %(viewer)s))

-- name: history
SELECT r.id AS registration_id, r.incarnation, $health$ AS health, r.connection_type, r.connection_details,
       r.registered_at, r.last_heartbeat_at, r.unregistered_at, r.failure_reason,
       extract(epoch FROM coalesce(r.unregistered_at, clock.now) - r.registered_at)::float8 AS duration_seconds
  FROM worker_registrations AS r
 CROSS JOIN (SELECT now() AS now) AS clock
 WHERE r.service_id = (SELECT s.id FROM worker_services AS s WHERE s.uuid = %(worker)s) AND r.id < %(before)s
 ORDER BY r.id DESC LIMIT %(limit)s

-- name: named_tasks_page
-- Named tasks with the worker services that can execute them now, also those that have none (C-21).
SELECT g.name AS group_name, n.namespace, n.name, n.version, n.created_at, c.available, c.worker_ids, c.supporting
  FROM named_tasks AS n
  JOIN user_groups AS g ON g.id = n.user_group_id
 CROSS JOIN LATERAL (
     SELECT (SELECT count(*) FROM worker_named_tasks AS a
              WHERE a.named_task_id = n.id AND a.withdrawn_at IS NULL) AS supporting,
            count(*) AS available, coalesce(array_agg(s.worker_id ORDER BY s.worker_id COLLATE "C"), '{}') AS worker_ids
       FROM worker_named_tasks AS a
       JOIN worker_services AS s ON s.id = a.service_id
       JOIN worker_registrations AS r ON r.service_id = s.id AND r.unregistered_at IS NULL
      CROSS JOIN (SELECT now() AS now) AS clock
      WHERE a.named_task_id = n.id AND a.withdrawn_at IS NULL AND $usable$) AS c
 WHERE $viewed$
   AND (g.name, n.namespace, n.name, n.version)
       > (%(after_group)s, %(after_namespace)s, %(after_name)s, %(after_version)s)
   AND CASE %(wanted)s WHEN 'none' THEN c.available = 0 WHEN 'one' THEN c.available = 1 ELSE true END
 ORDER BY g.name, n.namespace, n.name, n.version LIMIT %(limit)s
