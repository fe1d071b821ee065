-- The first and the last call of an agent process (protocol P5).

-- name: lock_manager
SELECT m.id, m.uuid, m.name, m.incarnation, m.machine_id, m.boot_id, m.host_name,
       c.offline, coalesce(extract(epoch FROM clock_timestamp() - c.last_contact_at)::float8, 'infinity')
           AS silent_seconds
  FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
 WHERE m.uuid = %(manager)s
   FOR NO KEY UPDATE OF m

-- name: save_hello
UPDATE managers
   SET incarnation = %(incarnation)s, machine_id = %(machine_id)s, boot_id = %(boot_id)s,
       host_name = %(host_name)s, cores = %(cores)s::int[], agent_version = %(agent_version)s,
       updated_at = now()
 WHERE id = %(manager_number)s

-- name: set_online
UPDATE manager_live SET offline = false, last_contact_at = now() WHERE manager_id = %(manager_number)s

-- name: owed
SELECT g.uuid FROM environments AS e JOIN task_groups AS g ON g.id = e.group_id
 WHERE e.manager_id = %(manager_number)s AND e.state = 'owed'
 ORDER BY e.changed_at

-- name: held
SELECT l.epoch, g.uuid AS task_group_id, g.host_lost_after_seconds
  FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id
 WHERE l.manager_id = %(manager_number)s AND l.kind = 'manager' AND l.state = 'active'
