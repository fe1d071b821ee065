-- The start of a process of a worker service: the service, its named tasks, its registration (S004-28).

-- name: lock_service
SELECT s.id, s.uuid, s.worker_id, s.incarnation, s.machine_id, s.token_version
  FROM worker_services AS s WHERE s.worker_id = %(worker_id)s
   FOR NO KEY UPDATE

-- name: insert_service
INSERT INTO worker_services (worker_id, creator_id)
SELECT %(worker_id)s, u.id FROM users AS u WHERE u.uuid = %(user)s
ON CONFLICT (worker_id) DO NOTHING

-- name: current
-- The caller holds the service.
SELECT r.id, r.incarnation, clock.now < r.alive_until AS in_contact
  FROM worker_registrations AS r CROSS JOIN (SELECT now() AS now) AS clock
 WHERE r.service_id = %(service)s AND r.unregistered_at IS NULL

-- name: roles_of_both
-- The roles of a service, with those of a user in the same user groups.
SELECT w.role, m.role AS held
  FROM user_group_workers AS w
  LEFT JOIN user_group_members AS m ON m.user_group_id = w.user_group_id
        AND m.user_id = (SELECT id FROM users WHERE uuid = %(user)s)
 WHERE w.service_id = %(service)s

-- name: update_service
UPDATE worker_services
   SET metadata = %(metadata)s::jsonb, tags = %(tags)s::text[], labels = %(labels)s::text[],
       slots = %(slots)s, silence_seconds = %(silence_seconds)s, incarnation = %(incarnation)s,
       machine_id = coalesce(%(machine_id)s, machine_id),
       updated_at = now()
 WHERE id = %(service)s

-- name: remove_roles
DELETE FROM user_group_workers
 WHERE service_id = %(service)s AND user_group_id <> ALL (%(group_numbers)s::bigint[])

-- name: save_roles
INSERT INTO user_group_workers (user_group_id, service_id, role)
SELECT r.user_group_id, %(service)s, r.role
  FROM unnest(%(group_numbers)s::bigint[], %(roles)s::text[]) AS r (user_group_id, role)
ON CONFLICT (user_group_id, service_id) DO UPDATE SET role = excluded.role

-- name: served_groups
-- The user groups whose named tasks it may execute.
SELECT w.user_group_id FROM user_group_workers AS w
 WHERE w.service_id = %(service)s AND w.role IN ('write', 'admin')
 ORDER BY w.user_group_id

-- name: save_named_tasks
-- In the order of the unique key, so that two registrations do not deadlock.
INSERT INTO named_tasks (user_group_id, namespace, name, version)
SELECT g.id, t.namespace, t.name, t.version
  FROM unnest(%(groups)s::bigint[]) AS g (id)
 CROSS JOIN unnest(%(namespaces)s::text[], %(names)s::text[], %(versions)s::text[]) AS t (namespace, name, version)
 WHERE NOT EXISTS (SELECT FROM named_tasks AS n
                    WHERE n.user_group_id = g.id AND n.namespace = t.namespace
                      AND n.name = t.name AND n.version = t.version)
 ORDER BY 1, 2, 3, 4
ON CONFLICT DO NOTHING

-- name: save_associations
-- A configuration that differs gets the next version, also after the task was withdrawn for a time. A new row gets
-- one that none of the rows had that are deleted: results name versions.
INSERT INTO worker_named_tasks AS a (service_id, named_task_id, configuration, priority, max_concurrent,
                                     configuration_version)
SELECT s.id, n.id, t.configuration::jsonb, t.priority, t.max_concurrent, s.deleted_version + 1
  FROM unnest(%(namespaces)s::text[], %(names)s::text[], %(versions)s::text[], %(configurations)s::text[],
              %(priorities)s::int[], %(max_concurrent)s::int[])
       AS t (namespace, name, version, configuration, priority, max_concurrent)
  JOIN named_tasks AS n ON n.user_group_id = ANY (%(groups)s::bigint[])
       AND n.namespace = t.namespace AND n.name = t.name AND n.version = t.version
  JOIN worker_services AS s ON s.id = %(service)s
ON CONFLICT (service_id, named_task_id) DO UPDATE
   SET configuration = excluded.configuration, priority = excluded.priority,
       configuration_version = a.configuration_version
           + CASE WHEN a.configuration = excluded.configuration THEN 0 ELSE 1 END,
       max_concurrent = excluded.max_concurrent, withdrawn_at = NULL
 WHERE (a.configuration, a.priority, a.max_concurrent, a.withdrawn_at)
       IS DISTINCT FROM (excluded.configuration, excluded.priority, excluded.max_concurrent, NULL)

-- name: withdraw_associations
-- Those that the registration leaves out.
UPDATE worker_named_tasks AS a SET withdrawn_at = now()
 WHERE a.service_id = %(service)s AND a.withdrawn_at IS NULL
   AND NOT EXISTS (
       SELECT FROM named_tasks AS n
         JOIN unnest(%(namespaces)s::text[], %(names)s::text[], %(versions)s::text[])
              AS t (namespace, name, version)
           ON n.namespace = t.namespace AND n.name = t.name AND n.version = t.version
        WHERE n.id = a.named_task_id AND n.user_group_id = ANY (%(groups)s::bigint[]))

-- name: end_current
-- One that has been silent for too long ended when its time was over.
UPDATE worker_registrations
   SET unregistered_at = least(alive_until, now()),
       failure_reason = CASE WHEN alive_until <= now() THEN 'silent' ELSE 'new_incarnation' END
 WHERE service_id = %(service)s AND unregistered_at IS NULL

-- name: insert_registration
INSERT INTO worker_registrations (service_id, incarnation, connection_type, connection_details, alive_until)
VALUES (%(service)s, %(incarnation)s, %(connection_type)s, %(connection_details)s::jsonb,
        now() + make_interval(secs => %(silence_seconds)s))
RETURNING id

-- name: repeat_registration
UPDATE worker_registrations
   SET connection_type = %(connection_type)s, connection_details = %(connection_details)s::jsonb,
       alive_until = now() + make_interval(secs => %(silence_seconds)s)
 WHERE service_id = %(service)s AND unregistered_at IS NULL
RETURNING id

-- name: worker_token_version
SELECT token_version FROM worker_services WHERE uuid = %(worker)s
