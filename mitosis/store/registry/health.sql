-- Expressions about worker_registrations AS r, worker_services AS s, and clock (now) that replace $health$ and
-- $usable$ in statements. Their rule is mitosis/contracts/worker_health.py.

-- name: health
CASE WHEN r.unregistered_at IS NOT NULL OR clock.now >= r.alive_until THEN 'disconnected'
     WHEN r.last_heartbeat_at IS NULL THEN 'registered'
     WHEN clock.now - r.last_heartbeat_at > make_interval(secs => $healthy_seconds$) THEN 'unhealthy'
     ELSE 'healthy' END

-- name: usable
-- It may be given tasks now.
(s.draining_since IS NULL AND ($health$) = 'healthy')
