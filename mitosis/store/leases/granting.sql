-- The host's side of a lease: taking an offer, the data to run it, its liveness clock (protocol P4, P6).

-- name: take
UPDATE leases AS l
   SET state = 'active', taken_at = now(), affinity_until = now() + make_interval(secs => %(affinity)s),
       alive_until = now() + make_interval(secs => coalesce(g.host_lost_after_seconds, %(host_lost_after)s))
  FROM managers AS m, task_groups AS g
 WHERE l.epoch = %(epoch)s AND l.state = 'offered' AND m.id = l.manager_id AND m.uuid = %(manager)s
   AND g.id = l.group_id

-- name: grant
SELECT l.epoch, l.state AS lease_state, g.uuid AS task_group_id, g.id AS task_group_number,
       g.name AS task_group_name, u.name AS group_name, g.worker_allocation_plan, g.environment_setup_hook,
       g.environment_probe,
       e.state AS environment_state, e.fingerprint AS environment_fingerprint, g.cancel_grace_seconds,
       coalesce(g.host_lost_after_seconds, %(host_lost_after)s)::float8 AS host_lost_after_seconds, g.fence
  FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  JOIN task_groups AS g ON g.id = l.group_id
  JOIN user_groups AS u ON u.id = g.user_group_id
  LEFT JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id
 WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s

-- name: live_epoch
SELECT l.epoch FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE m.uuid = %(manager)s AND l.kind = 'manager' AND l.state <> 'ended'

-- name: stay_alive
-- Every contact moves the fence. A separate statement from contact because of the lock order.
UPDATE leases AS l
   SET alive_until = greatest(l.alive_until, now()
         + make_interval(secs => coalesce(g.host_lost_after_seconds, %(host_lost_after)s)))
  FROM task_groups AS g
 WHERE l.manager_id = %(manager_number)s AND l.kind = 'manager' AND l.state IN ('active', 'ending')
   AND g.id = l.group_id
RETURNING l.epoch, l.state, g.uuid AS task_group_id
