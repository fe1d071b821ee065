-- The end of registrations of worker services that are silent (protocol P10).

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
