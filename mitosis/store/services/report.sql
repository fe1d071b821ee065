-- Reports of worker services (protocol P10).

-- name: standing
SELECT s.incarnation, EXISTS (
           SELECT FROM worker_registrations AS r
            WHERE r.service_id = s.id AND r.unregistered_at IS NULL AND r.incarnation = %(incarnation)s
              AND now() < r.alive_until) AS current
  FROM worker_services AS s WHERE s.uuid = %(worker)s
