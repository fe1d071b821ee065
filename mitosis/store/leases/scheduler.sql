-- The assignment round. Its transaction-level advisory lock makes rounds take turns; everybody else is
-- held off by row locks only.

-- name: lock
SELECT pg_advisory_xact_lock(hashtext('mitosis.assign_round'))

-- name: idle_managers
-- In contact, not draining, no lease that is not over, nothing half made or to be cleaned on it.
SELECT m.id, m.tags, m.cores,
       ARRAY(SELECT r.user_group_id FROM user_group_managers AS r
              WHERE r.manager_id = m.id AND r.role IN ('write', 'admin')) AS serves,
       ARRAY(SELECT e.group_id FROM environments AS e
              WHERE e.manager_id = m.id AND e.state = 'ready') AS warm,
       ARRAY(SELECT DISTINCT h.group_id FROM hook_runs AS h JOIN group_live AS v ON v.group_id = h.group_id
              WHERE h.manager_id = m.id AND h.kind = 'setup' AND h.state = 'failed'
                AND v.settled_at IS NULL) AS failed
  FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
 WHERE NOT c.offline AND NOT m.draining AND c.last_contact_at > now() - interval '10 seconds'
   AND NOT EXISTS (SELECT FROM leases AS l
                    WHERE l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended')
   AND NOT EXISTS (SELECT FROM environments AS e JOIN group_live AS v ON v.group_id = e.group_id
                    WHERE e.manager_id = m.id AND e.state <> 'gone'
                      AND (e.state <> 'ready' OR v.state IN ('complete', 'cancelled')))
 ORDER BY m.id

-- name: contestable_managers
-- Managers in contact with an active lease: whether it has work (C-04), and when it will have had none for
-- the idle threshold, in seconds. Same facts as idle_managers: they are matched the same way.
SELECT m.id, m.tags, m.cores, l.epoch,
       ARRAY(SELECT r.user_group_id FROM user_group_managers AS r
              WHERE r.manager_id = m.id AND r.role IN ('write', 'admin')) AS serves,
       ARRAY(SELECT e.group_id FROM environments AS e
              WHERE e.manager_id = m.id AND e.state = 'ready') AS warm,
       ARRAY(SELECT DISTINCT h.group_id FROM hook_runs AS h JOIN group_live AS v ON v.group_id = h.group_id
              WHERE h.manager_id = m.id AND h.kind = 'setup' AND h.state = 'failed'
                AND v.settled_at IS NULL) AS failed,
       extract(epoch FROM greatest(l.busy_at, l.taken_at) - now())::float8 + %(idle_threshold)s AS seconds_left,
       EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 0)
         OR EXISTS (SELECT FROM open_task AS o
                     WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch) AS busy
  FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  JOIN manager_live AS c ON c.manager_id = m.id
 WHERE l.kind = 'manager' AND l.state = 'active'
   AND NOT c.offline AND NOT m.draining AND c.last_contact_at > now() - interval '10 seconds'
   AND EXISTS (SELECT FROM environments AS e
                WHERE e.manager_id = m.id AND e.group_id = l.group_id AND e.state = 'ready')
 ORDER BY m.id

-- name: move_leases
-- End idle leases so that their hosts can go to other groups. A claim in between is no harm: what runs is
-- finished and reported first. A lease that somebody holds is left to the next round: groups are held here,
-- and a lease must not be waited for after a group.
WITH moved AS (
    UPDATE leases AS l SET state = 'ending', end_reason = 'moved'
     WHERE l.epoch IN (SELECT c.epoch FROM leases AS c
                        WHERE c.epoch = ANY(%(epochs)s::bigint[]) AND c.state = 'active'
                          FOR UPDATE OF c SKIP LOCKED)
    RETURNING l.manager_id, l.group_id
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'manager', m.uuid FROM moved AS l JOIN managers AS m ON m.id = l.manager_id
)
SELECT pg_notify('mitosis_wake', group_id::text) FROM moved

-- name: hungry_groups
-- Groups with claimable work, best first, one page after the other; ready is counted up to what could
-- matter for so many managers.
SELECT g.id, g.uuid, g.priority, g.user_group_id, g.tags, g.tag_match, g.max_managers, g.assignment_method,
       g.worker_allocation_plan AS plan, s.live_leases, r.ready,
       ARRAY(SELECT t.manager_id FROM task_group_managers AS t
              WHERE t.task_group_id = g.id AND t.assignment_method = 'user_specified') AS named
  FROM task_groups AS g
  JOIN group_live AS v ON v.group_id = g.id
 CROSS JOIN LATERAL (SELECT count(*) AS live_leases FROM leases AS l
                      WHERE l.group_id = g.id AND l.state <> 'ended') AS s
 CROSS JOIN LATERAL (
       SELECT count(*) AS ready FROM (
           (SELECT 1 FROM open_task AS o WHERE o.group_id = g.id AND o.state = 0
             LIMIT 2 * (g.worker_allocation_plan ->> 'worker_count')::bigint * (s.live_leases + %(managers)s))
           UNION ALL
           (SELECT 1 FROM open_task AS o WHERE o.group_id = g.id AND o.state = 4 AND o.not_before <= now()
             LIMIT 1000)) AS c) AS r
 WHERE v.settled_at IS NULL AND v.state IN ('open', 'closed') AND NOT v.discarding AND v.unfinished > 0
   AND g.kind = 'managed' AND r.ready > 0
   AND (%(after_id)s::bigint IS NULL OR (-g.priority::bigint, g.id) > (-%(after_priority)s::bigint, %(after_id)s))
 ORDER BY g.priority DESC, g.id
 LIMIT %(limit)s

-- name: hold_groups
-- Shared with submits and reports, not with endings: an ending of the group comes before or after this
-- round's offers, never between.
SELECT v.group_id FROM group_live AS v
 WHERE v.group_id = ANY(%(groups)s::bigint[]) AND v.state IN ('open', 'closed') AND NOT v.discarding
 ORDER BY v.group_id
   FOR KEY SHARE OF v

-- name: offer
INSERT INTO leases (group_id, manager_id)
SELECT o.group_id, o.manager_id
  FROM unnest(%(groups)s::bigint[], %(managers)s::bigint[]) AS o (group_id, manager_id)
    ON CONFLICT (manager_id) WHERE kind = 'manager' AND state <> 'ended' DO NOTHING

-- name: poke_offered
-- Every offer that is open, those of this round too, and hosts whose silence is a loss by now.
INSERT INTO outbox (kind, subject)
SELECT 'manager', m.uuid FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.kind = 'manager'
   AND (l.state = 'offered' OR (l.state IN ('active', 'ending') AND l.alive_until < now()))

-- name: next_delayed
-- When a delayed task of a group without a lease is due.
SELECT extract(epoch FROM min(d.due) - now())::float8 AS seconds
  FROM group_live AS v
 CROSS JOIN LATERAL (SELECT min(o.not_before) AS due FROM open_task AS o
                      WHERE o.group_id = v.group_id AND o.state = 4) AS d
 WHERE v.settled_at IS NULL AND v.unfinished > 0 AND v.state IN ('open', 'closed')
   AND NOT EXISTS (SELECT FROM leases AS l WHERE l.group_id = v.group_id AND l.state <> 'ended')

-- name: tell_relay
SELECT pg_notify('mitosis_outbox', '')
