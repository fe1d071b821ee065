-- Calls of worker services after their registration.

-- name: heartbeat
-- A registration that a later process has ended meets no condition when its row lock is free.
UPDATE worker_registrations AS r
   SET last_heartbeat_at = now(), alive_until = now() + make_interval(secs => s.silence_seconds)
  FROM worker_services AS s
 WHERE s.uuid = %(worker)s AND s.incarnation = %(incarnation)s AND r.service_id = s.id
   AND r.unregistered_at IS NULL AND r.incarnation = s.incarnation AND now() < r.alive_until
RETURNING r.id AS registration_id, r.alive_until, s.draining_since IS NOT NULL AS draining

-- name: registered
SELECT s.id AS service
  FROM worker_services AS s
  JOIN worker_registrations AS r ON r.service_id = s.id AND r.unregistered_at IS NULL
 WHERE s.uuid = %(worker)s AND s.incarnation = %(incarnation)s AND r.incarnation = s.incarnation
   AND now() < r.alive_until

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

-- name: drain_worker
UPDATE worker_services
   SET draining_since = coalesce(draining_since, now()), drain_reason = coalesce(%(reason)s, drain_reason),
       updated_at = now()
 WHERE uuid = %(worker)s

-- name: resume_worker
UPDATE worker_services SET draining_since = NULL, drain_reason = NULL, updated_at = now() WHERE uuid = %(worker)s
