-- Drains of hosts. The caller holds the manager and its live lease.

-- name: drain
UPDATE managers
   SET draining = true, draining_since = CASE WHEN draining THEN draining_since ELSE now() END,
       drain_reason = coalesce(%(reason)s::text, CASE WHEN draining THEN drain_reason END), updated_at = now()
 WHERE id = %(manager_number)s

-- name: drain_lease
-- From here on nothing is claimed. The lease ends now, or with the renewal that finds it without tasks.
WITH changed AS (
    UPDATE leases AS l
       SET draining = true, state = CASE WHEN %(now)s THEN 'ending' ELSE l.state END,
           end_reason = CASE WHEN %(now)s THEN 'drained' ELSE l.end_reason END
     WHERE l.manager_id = %(manager_number)s AND l.kind = 'manager' AND l.state = 'active'
    RETURNING l.group_id
)
SELECT pg_notify('mitosis_wake', group_id::text) FROM changed

-- name: resume
UPDATE managers SET draining = false, draining_since = NULL, drain_reason = NULL, updated_at = now()
 WHERE id = %(manager_number)s

-- name: resume_lease
-- Not a lease that was taken from its group for another one.
WITH changed AS (
    UPDATE leases AS l SET draining = false
     WHERE l.manager_id = %(manager_number)s AND l.kind = 'manager' AND l.state = 'active' AND l.draining
       AND l.freed_for IS NULL
    RETURNING l.group_id
)
SELECT pg_notify('mitosis_wake', group_id::text) FROM changed
