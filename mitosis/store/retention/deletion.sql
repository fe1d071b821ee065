-- Deletes what is kept no longer (C-34), in chunks.

-- name: add_kinds
-- Those of this version; the first pass of a new one begins at once.
INSERT INTO retention (kind) SELECT unnest(%(kinds)s::text[]) ON CONFLICT DO NOTHING

-- name: take
-- The kind of row that is due, with the place that its pass has reached; another process may work on another kind.
SELECT r.kind, r.seen_to, r.seen_to IS NULL AS first FROM retention AS r
 WHERE r.next_at <= now() AND r.kind = ANY(%(kinds)s::text[])
 ORDER BY r.next_at, r.kind LIMIT 1
   FOR UPDATE SKIP LOCKED

-- name: advance
-- The pass goes on behind what this chunk has looked at.
UPDATE retention
   SET seen_to = %(seen_to)s, deleted = deleted + %(deleted)s,
       pass_deleted = CASE WHEN %(first)s THEN 0 ELSE pass_deleted END + %(deleted)s
 WHERE kind = %(kind)s

-- name: finish
-- Nothing more is old enough.
UPDATE retention
   SET seen_to = NULL, next_at = now() + make_interval(secs => %(every)s), finished_at = now(),
       kept_seconds = %(kept)s, pass_deleted = CASE WHEN %(first)s THEN 0 ELSE pass_deleted END
 WHERE kind = %(kind)s

-- name: next
SELECT greatest(extract(epoch FROM min(r.next_at) - now()), 0)::float8 AS seconds
  FROM retention AS r WHERE r.kind = ANY(%(kinds)s::text[])

-- name: show
SELECT r.kind, r.kept_seconds, r.deleted AS deleted_in_all, r.pass_deleted AS deleted_last, r.finished_at, r.next_at,
       r.seen_to IS NOT NULL AS in_progress, greatest(extract(epoch FROM now() - r.next_at), 0)::float8 AS overdue_seconds
  FROM retention AS r ORDER BY r.kind

-- Each of the next statements looks at one page of rows that are old enough, in the order of their age, deletes
-- those that nothing needs any more, and answers how far it came; NULL: no row was left. What is still needed is
-- looked at again by the next pass.

-- name: leases
-- A lease is needed while the report of an attempt that was claimed under it would count (P2); while its host has
-- not been in contact since for long enough to hand in its journal; while a group is to get its host. A worker
-- service reports under its last lease of a group, ended or not (P10). Which hosts and services have served a group
-- is known after it, since results of the group name them.
WITH page AS MATERIALIZED (
    SELECT l.epoch, l.ended_at, l.kind, l.group_id, l.manager_id, l.worker_uuid, l.freed_for FROM leases AS l
     WHERE l.state = 'ended' AND l.ended_at > %(seen_to)s::timestamptz
       AND l.ended_at < now() - make_interval(secs => %(kept)s)
     ORDER BY l.ended_at FETCH FIRST (%(limit)s) ROWS WITH TIES
), unneeded AS MATERIALIZED (
    SELECT l.epoch, l.group_id, l.manager_id, s.id AS service_id
      FROM page AS l
      LEFT JOIN group_live AS v ON v.group_id = l.group_id AND v.settled_at IS NULL
      LEFT JOIN managers AS m ON m.id = l.manager_id
      LEFT JOIN manager_live AS c ON c.manager_id = l.manager_id
      LEFT JOIN worker_services AS s ON s.uuid = l.worker_uuid
     WHERE NOT EXISTS (SELECT FROM group_live AS f WHERE f.group_id = l.freed_for AND f.settled_at IS NULL)
       AND (l.kind = 'worker' OR m.deleted_at IS NOT NULL
            OR least(now(), c.last_contact_at) - greatest(l.ended_at, c.contact_since)
               >= make_interval(secs => %(journal_seconds)s))
       AND (v.group_id IS NULL
            OR (NOT EXISTS (SELECT FROM open_task AS o
                             WHERE o.group_id = l.group_id AND o.claimed_by = coalesce(m.id, s.id))
                AND (l.kind = 'manager'
                     OR EXISTS (SELECT FROM leases AS n
                                 WHERE n.kind = 'worker' AND n.worker_uuid = l.worker_uuid
                                   AND n.group_id = l.group_id AND n.epoch > l.epoch))
                AND NOT EXISTS (SELECT FROM open_task AS o
                                 WHERE o.group_id = l.group_id AND o.state = 1 AND o.claim_seq = 0
                                   AND o.epoch = (SELECT n.epoch FROM leases AS n
                                                   WHERE n.kind = 'manager' AND n.manager_id = l.manager_id
                                                     AND n.state <> 'ended'))))
), gone AS (
    DELETE FROM leases WHERE epoch = ANY(ARRAY(SELECT epoch FROM unneeded)) RETURNING 1
), served AS (
    INSERT INTO group_hosts (group_id, manager_id)
    SELECT g.id, u.manager_id
      FROM (SELECT DISTINCT l.group_id, l.manager_id FROM unneeded AS l WHERE l.manager_id IS NOT NULL) AS u
      JOIN task_groups AS g ON g.id = u.group_id
       FOR KEY SHARE OF g  -- not one that is deleted just now
        ON CONFLICT DO NOTHING
), executed AS (
    INSERT INTO group_services (group_id, service_id)
    SELECT g.id, u.service_id
      FROM (SELECT DISTINCT l.group_id, l.service_id FROM unneeded AS l WHERE l.service_id IS NOT NULL) AS u
      JOIN task_groups AS g ON g.id = u.group_id
       FOR KEY SHARE OF g
        ON CONFLICT DO NOTHING
)
SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT max(ended_at) FROM page) AS seen_to

-- name: environments
-- Not before its host has been in contact long enough to repeat what it has said of it. Of a group that is not settled
-- only what cannot change its result, and only while its host has no lease of it.
WITH page AS MATERIALIZED (
    SELECT e.ctid AS place, e.changed_at FROM environments AS e
     WHERE e.state = 'gone' AND e.changed_at > %(seen_to)s::timestamptz
       AND e.changed_at < now() - make_interval(secs => %(kept)s)
     ORDER BY e.changed_at FETCH FIRST (%(limit)s) ROWS WITH TIES
), gone AS (
    DELETE FROM environments AS e
     WHERE e.ctid = ANY(ARRAY(SELECT place FROM page)) AND e.state = 'gone'
       AND e.changed_at < now() - make_interval(secs => %(kept)s)
       AND EXISTS (SELECT FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
                    WHERE m.id = e.manager_id
                      AND (m.deleted_at IS NOT NULL
                           OR least(now(), c.last_contact_at) - greatest(e.changed_at, c.contact_since)
                              >= make_interval(secs => %(journal_seconds)s)))
       AND NOT EXISTS (SELECT FROM group_live AS v
                        WHERE v.group_id = e.group_id AND v.settled_at IS NULL
                          AND (e.degraded
                               OR EXISTS (SELECT FROM leases AS l
                                           WHERE l.manager_id = e.manager_id AND l.kind = 'manager'
                                             AND l.group_id = e.group_id AND l.state <> 'ended')))
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT max(changed_at) FROM page) AS seen_to

-- name: hook_runs
-- While its group is not settled, or not for so long, or its environment exists, the last run of each kind that
-- ended in each way stays: the result of the group, and what is shown of its hosts, follow from these.
WITH page AS MATERIALIZED (
    SELECT h.id, h.started_at FROM hook_runs AS h
     WHERE h.started_at > %(seen_to)s::timestamptz AND h.started_at < now() - make_interval(secs => %(kept)s)
     ORDER BY h.started_at FETCH FIRST (%(limit)s) ROWS WITH TIES
), gone AS (
    DELETE FROM hook_runs AS h
     WHERE h.id = ANY(ARRAY(SELECT id FROM page))
       AND (EXISTS (SELECT FROM hook_runs AS n
                     WHERE n.group_id = h.group_id AND n.manager_id = h.manager_id AND n.kind = h.kind
                       AND n.state = h.state AND (n.started_at, n.id) > (h.started_at, h.id))
            OR (NOT EXISTS (SELECT FROM environments AS e
                             WHERE e.manager_id = h.manager_id AND e.group_id = h.group_id AND e.state <> 'gone')
                AND NOT EXISTS (SELECT FROM group_live AS v
                                 WHERE v.group_id = h.group_id
                                   AND (v.settled_at < now() - make_interval(secs => %(kept)s)) IS NOT TRUE)))
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT max(started_at) FROM page) AS seen_to

-- name: worker_registrations
-- The last registration of each service stays: its health follows from it.
WITH page AS MATERIALIZED (
    SELECT r.id, r.unregistered_at FROM worker_registrations AS r
     WHERE r.unregistered_at > %(seen_to)s::timestamptz
       AND r.unregistered_at < now() - make_interval(secs => %(kept)s)
     ORDER BY r.unregistered_at FETCH FIRST (%(limit)s) ROWS WITH TIES
), gone AS (
    DELETE FROM worker_registrations AS r
     WHERE r.id = ANY(ARRAY(SELECT id FROM page))
       AND EXISTS (SELECT FROM worker_registrations AS n WHERE n.service_id = r.service_id AND n.id > r.id)
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT max(unregistered_at) FROM page) AS seen_to

-- name: hosts
-- A deleted host is needed while a task group exists that it has served: results name it. The rest of what names it
-- is kept for a time of its own, and goes first.
WITH page AS MATERIALIZED (
    SELECT m.id, m.deleted_at, m.groups_known FROM managers AS m
     WHERE m.deleted_at > %(seen_to)s::timestamptz AND m.deleted_at < now() - make_interval(secs => %(kept)s)
     ORDER BY m.deleted_at FETCH FIRST (%(limit)s) ROWS WITH TIES
), unneeded AS MATERIALIZED (
    SELECT p.id FROM page AS p
     WHERE p.groups_known
       AND NOT EXISTS (SELECT FROM leases AS l WHERE l.manager_id = p.id)
       AND NOT EXISTS (SELECT FROM group_hosts AS s WHERE s.manager_id = p.id)
       AND NOT EXISTS (SELECT FROM environments AS e WHERE e.manager_id = p.id)
       AND NOT EXISTS (SELECT FROM hook_runs AS h WHERE h.manager_id = p.id)
), gone AS (
    DELETE FROM managers WHERE id = ANY(ARRAY(SELECT id FROM unneeded)) RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT max(deleted_at) FROM page) AS seen_to

-- name: deleted_groups
-- What is kept of a deleted group for hosts that were cut off goes last.
WITH page AS MATERIALIZED (
    SELECT d.group_id, d.finished_at FROM deleted_groups AS d
     WHERE d.finished_at > %(seen_to)s::timestamptz AND d.finished_at < now() - make_interval(secs => %(kept)s)
     ORDER BY d.finished_at FETCH FIRST (%(limit)s) ROWS WITH TIES
), gone AS (
    DELETE FROM deleted_groups AS d
     WHERE d.group_id = ANY(ARRAY(SELECT group_id FROM page))
       AND NOT EXISTS (SELECT FROM environments AS e WHERE e.group_id = d.group_id AND e.state <> 'gone')
       -- Each of the two has an index of its own.
       AND NOT EXISTS (SELECT FROM leases AS l WHERE l.group_id = d.group_id AND l.state <> 'ended')
       AND NOT EXISTS (SELECT FROM leases AS l WHERE l.group_id = d.group_id AND l.state = 'ended')
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT max(finished_at) FROM page) AS seen_to

-- name: due_group
-- The settled group whose bookkeeping is due first.
SELECT v.group_id, v.settled_at FROM group_live AS v
 WHERE v.settled_at < now() - make_interval(secs => %(kept)s) AND NOT v.bookkeeping_deleted
 ORDER BY v.settled_at LIMIT 1
   FOR UPDATE SKIP LOCKED

-- name: failures
DELETE FROM task_failures WHERE id = ANY(ARRAY(
    SELECT f.id FROM task_failures AS f WHERE f.group_id = %(group_number)s LIMIT %(limit)s))

-- name: submissions
-- Few at once: a submission names up to 10,000 tasks.
DELETE FROM submission AS s
 USING (SELECT b.idempotency_key, b.part FROM submission AS b
         WHERE b.group_id = %(group_number)s LIMIT %(limit)s / 50 + 1) AS p
 WHERE s.group_id = %(group_number)s AND s.idempotency_key = p.idempotency_key AND s.part = p.part

-- name: host_failures
DELETE FROM host_failures WHERE group_id = %(group_number)s

-- name: durations
DELETE FROM environment_durations WHERE group_id = %(group_number)s

-- name: bookkeeping_deleted
UPDATE group_live SET bookkeeping_deleted = true WHERE group_id = %(group_number)s

-- name: settled_groups
-- One page of settled task groups, with those among them that are kept no longer.
WITH page AS MATERIALIZED (
    SELECT v.group_id, v.settled_at FROM group_live AS v
     WHERE v.settled_at > %(seen_to)s::timestamptz
       AND v.settled_at < now() - make_interval(secs => (
           SELECT least(min(u.keep_seconds), %(kept)s::float8) FROM user_groups AS u WHERE u.keep_seconds < 'Infinity'))
     ORDER BY v.settled_at FETCH FIRST (%(groups)s) ROWS WITH TIES
)
SELECT (SELECT max(settled_at) FROM page) AS seen_to, ARRAY(
    SELECT g.uuid FROM page AS p
      JOIN task_groups AS g ON g.id = p.group_id
      JOIN user_groups AS u ON u.id = g.user_group_id
     WHERE extract(epoch FROM now() - p.settled_at) > coalesce(u.keep_seconds, %(kept)s, 'Infinity')
       AND NOT EXISTS (SELECT FROM run_groups AS n WHERE n.task_group = g.uuid AND NOT n.standing)  -- goes with its run
     ORDER BY p.settled_at) AS due

-- name: ended_runs
-- One page of ended runs, with those among them that are kept no longer.
WITH page AS MATERIALIZED (
    SELECT r.uuid, r.ended_at, r.user_group_id FROM runs AS r
     WHERE r.ended_at > %(seen_to)s::timestamptz
       AND r.ended_at < now() - make_interval(secs => (
           SELECT least(min(u.keep_seconds), %(kept)s::float8) FROM user_groups AS u WHERE u.keep_seconds < 'Infinity'))
     ORDER BY r.ended_at FETCH FIRST (%(groups)s) ROWS WITH TIES
)
SELECT (SELECT max(ended_at) FROM page) AS seen_to, ARRAY(
    SELECT p.uuid FROM page AS p JOIN user_groups AS u ON u.id = p.user_group_id
     WHERE extract(epoch FROM now() - p.ended_at) > coalesce(u.keep_seconds, %(kept)s, 'Infinity')
     ORDER BY p.ended_at) AS due
