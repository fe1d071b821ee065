-- Calls of worker services after their registration, and the end of registrations that are silent.

-- name: heartbeat
-- A registration that a later process has ended meets no condition when its row lock is free.
UPDATE worker_registrations AS r
   SET last_heartbeat_at = now(), alive_until = now() + make_interval(secs => s.silence_seconds)
  FROM worker_services AS s
 WHERE s.uuid = %(worker)s AND s.incarnation = %(incarnation)s AND r.service_id = s.id
   AND r.unregistered_at IS NULL AND r.incarnation = s.incarnation AND now() < r.alive_until
RETURNING r.id AS registration_id, r.alive_until, s.draining_since IS NOT NULL AS draining

-- name: goodbye
UPDATE worker_registrations AS r
   SET unregistered_at = least(r.alive_until, now()),
       failure_reason = CASE WHEN r.alive_until <= now() THEN 'silent' ELSE %(reason)s END
  FROM worker_services AS s
 WHERE s.uuid = %(worker)s AND r.service_id = s.id AND r.unregistered_at IS NULL
   AND r.incarnation = %(incarnation)s
RETURNING s.id AS service

-- name: service_state
SELECT s.worker_id, s.incarnation FROM worker_services AS s WHERE s.uuid = %(worker)s

-- name: end_silent
-- The services whose registrations were ended, and the seconds until the first of the others is over if its service stays silent.
WITH silent AS (
    SELECT r.id FROM worker_registrations AS r
     WHERE r.unregistered_at IS NULL AND r.alive_until <= now()
     ORDER BY r.alive_until LIMIT %(most)s
       FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE worker_registrations AS r SET unregistered_at = r.alive_until, failure_reason = 'silent'
      FROM silent WHERE r.id = silent.id
    RETURNING r.service_id
)
SELECT coalesce((SELECT array_agg(service_id) FROM ended), '{}') AS ended,
       (SELECT extract(epoch FROM min(r.alive_until) - now())::float8 FROM worker_registrations AS r
         WHERE r.unregistered_at IS NULL AND r.alive_until > now()) AS next_seconds

-- name: drain_worker
UPDATE worker_services
   SET draining_since = coalesce(draining_since, now()), drain_reason = coalesce(%(reason)s, drain_reason),
       updated_at = now()
 WHERE uuid = %(worker)s

-- name: resume_worker
UPDATE worker_services SET draining_since = NULL, drain_reason = NULL, updated_at = now() WHERE uuid = %(worker)s
