-- Heartbeats of the API (protocol P4). Lock order: api_pulse, leases, manager_live.

-- name: lock
-- The last heartbeat and its age. No row before the first one.
SELECT p.beat_at, extract(epoch FROM clock_timestamp() - p.beat_at)::float8 AS age_seconds
  FROM api_pulse AS p
   FOR NO KEY UPDATE

-- name: beat
INSERT INTO api_pulse (beat_at) VALUES (clock_timestamp())
    ON CONFLICT (only_row) DO UPDATE SET beat_at = excluded.beat_at

-- name: restart_leases
-- Restart the liveness clocks of leases that had not run out when the outage began.
UPDATE leases AS l
   SET alive_until = greatest(l.alive_until, clock_timestamp()
         + make_interval(secs => coalesce(g.host_lost_after_seconds, %(host_lost_after)s)))
  FROM task_groups AS g
 WHERE g.id = l.group_id AND l.state IN ('active', 'ending')
   AND l.epoch = ANY(ARRAY(SELECT c.epoch FROM leases AS c
                            WHERE c.state IN ('active', 'ending') AND c.alive_until >= %(beat_at)s
                            ORDER BY c.epoch FOR NO KEY UPDATE))

-- name: restart_managers
-- Restart those of hosts without a lease.
UPDATE manager_live SET last_contact_at = clock_timestamp()
 WHERE NOT offline AND last_contact_at >= %(beat_at)s - make_interval(secs => %(host_lost_after)s)

-- name: stale
-- Whether the last heartbeat is too old; false before the first one.
SELECT coalesce((SELECT p.beat_at < clock_timestamp() - make_interval(secs => %(stale_after)s)
                   FROM api_pulse AS p), false) AS stale
