-- The leases of worker services (protocol P10). Lock order: registration, leases by epoch, groups by number, task rows.

-- name: lock_leases
-- All that have not ended. Each claim of these services waits at its registration, which the caller has ended.
SELECT l.epoch, l.group_id AS group_number, s.id AS service_number
  FROM leases AS l JOIN worker_services AS s ON s.uuid = l.worker_uuid
 WHERE s.id = ANY(%(services)s::bigint[]) AND l.kind = 'worker' AND l.state <> 'ended'
 ORDER BY l.epoch
   FOR UPDATE OF l

-- name: carry
-- The caller holds the lease and its group. Attempts that the next process has in its journal stay claimed,
-- under an epoch that becomes a lease when this one has ended. No row: there are none.
WITH kept AS MATERIALIZED (
    SELECT o.id FROM open_task AS o
      JOIN unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS k (id, attempt) ON k.id = o.id AND k.attempt = o.attempt
     WHERE o.group_id = %(group_number)s AND o.state = 1 AND o.epoch = %(epoch)s
), next AS MATERIALIZED (
    SELECT nextval('lease_epoch') AS epoch WHERE EXISTS (SELECT FROM kept)
), moved AS (
    UPDATE open_task AS o SET epoch = (SELECT epoch FROM next)
     WHERE o.group_id = %(group_number)s AND o.id = ANY(ARRAY(SELECT id FROM kept))
)
SELECT n.epoch, l.state, l.worker_uuid FROM next AS n, leases AS l WHERE l.epoch = %(epoch)s

-- name: continue_lease
INSERT INTO leases (epoch, kind, group_id, worker_uuid, state, taken_at)
VALUES (%(epoch)s, 'worker', %(group_number)s, %(worker)s, %(state)s, now())

-- name: lease_of_group
-- The last lease of a service in a group, also one that has ended: under it the service reports.
SELECT l.epoch FROM leases AS l
 WHERE l.worker_uuid = %(worker)s AND l.group_id = %(group_number)s AND l.kind = 'worker'
 ORDER BY l.epoch DESC LIMIT 1

-- name: to_stop
-- Of the attempts that a process holds, those whose report would not count or that are to be stopped, with the
-- grace. Its own are those under a lease of the service, or requeued from it and not claimed since (P2).
SELECT h.group_id AS "group", h.id, h.attempt, o.id IS NULL AS superseded,
       coalesce(x.grace_seconds, v.grace_seconds, g.cancel_grace_seconds, 0)::float8 AS grace_seconds,
       coalesce(x.reason, CASE WHEN o.id IS NULL THEN 'its task has ended, or is executed elsewhere' ELSE v.reason END,
                'its task group was cancelled') AS reason
  FROM unnest(%(groups)s::bigint[], %(ids)s::bigint[], %(attempts)s::int[]) AS h (group_id, id, attempt)
  LEFT JOIN worker_services AS s ON s.uuid = %(worker)s
  LEFT JOIN leases AS l ON l.worker_uuid = s.uuid AND l.group_id = h.group_id AND l.kind = 'worker' AND l.state <> 'ended'
  LEFT JOIN open_task AS o
    ON o.group_id = h.group_id AND o.id = h.id AND o.attempt = h.attempt AND NOT o.spent
       AND (o.epoch = l.epoch OR (o.epoch IS NULL AND o.claimed_by = s.id))
  LEFT JOIN group_live AS v ON v.group_id = h.group_id
  LEFT JOIN task_groups AS g ON g.id = h.group_id
  LEFT JOIN LATERAL (SELECT y.grace_seconds, y.reason FROM leases AS n
                       JOIN task_stops AS y ON y.epoch = n.epoch AND y.task_id = h.id AND y.attempt = h.attempt
                      WHERE n.worker_uuid = s.uuid AND n.group_id = h.group_id AND n.kind = 'worker' LIMIT 1) AS x ON true
 WHERE o.id IS NULL OR (v.kill_running AND (v.discarding OR v.state = 'cancelled'))
