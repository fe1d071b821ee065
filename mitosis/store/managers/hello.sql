-- The first and the last call of an agent process (protocol P5).

-- name: lock_manager
SELECT m.id, m.uuid, m.name, m.incarnation, m.machine_id, m.boot_id, m.host_name, m.draining,
       c.offline, coalesce(extract(epoch FROM clock_timestamp() - c.last_contact_at)::float8, 'infinity')
           AS silent_seconds
  FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
 WHERE m.uuid = %(manager)s AND m.deleted_at IS NULL
   FOR NO KEY UPDATE OF m

-- name: save_hello
UPDATE managers
   SET incarnation = %(incarnation)s, machine_id = %(machine_id)s, boot_id = %(boot_id)s,
       host_name = %(host_name)s, cores = %(cores)s::int[], agent_version = %(agent_version)s,
       updated_at = now()
 WHERE id = %(manager_number)s

-- name: new_epoch
SELECT nextval('lease_epoch') AS epoch

-- name: insert_lease
-- The lease of a new process whose predecessor held one (P5). The caller holds the group's row.
INSERT INTO leases (epoch, group_id, manager_id, state, alive_until, taken_at, affinity_until, end_reason)
SELECT %(epoch)s, %(group_number)s, %(manager_number)s, %(state)s::text,
       now() + make_interval(secs => coalesce(g.host_lost_after_seconds, %(host_lost_after)s)),
       now(), now() + make_interval(secs => %(affinity)s), CASE WHEN %(state)s::text = 'ending' THEN 'new_incarnation' END
  FROM task_groups AS g WHERE g.id = %(group_number)s

-- name: move_journalled
-- Ended attempts whose reports are in the journal of the agent that says hello. The caller holds the old
-- lease and its group. With claim_seq 0 no claim returns them again, and the held exchange requeues them if
-- the agent no longer has their reports. An ended attempt is not running, so started_at goes.
UPDATE open_task AS o SET epoch = %(new_epoch)s, claim_seq = 0, started_at = NULL
  FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS j (id, attempt)
 WHERE o.group_id = %(group_number)s AND o.state = 1 AND o.epoch = %(old_epoch)s
   AND o.id = j.id AND o.attempt = j.attempt

-- name: set_online
UPDATE manager_live SET offline = false, last_contact_at = now(), contact_since = now()
 WHERE manager_id = %(manager_number)s

-- name: owed
-- Also of groups that no longer exist.
SELECT coalesce(e.task_group_uuid, g.uuid) AS uuid
  FROM environments AS e LEFT JOIN task_groups AS g ON g.id = e.group_id
 WHERE e.manager_id = %(manager_number)s AND e.state = 'owed'
 ORDER BY e.changed_at

-- name: held
SELECT l.epoch, g.uuid AS task_group_id, g.host_lost_after_seconds
  FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id
 WHERE l.manager_id = %(manager_number)s AND l.kind = 'manager' AND l.state = 'active'
